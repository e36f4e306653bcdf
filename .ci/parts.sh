# Sourced by scripts that run in parts: `part "what it is" command...` runs the command, remembers
# how long it took, and ends the script with a clear sentence if it fails.
parts_summary=""
parts_start=$SECONDS
part() {
  local name=$1 start=$SECONDS status=0
  shift
  printf '\n=== %s\n' "$name"
  "$@" || status=$?
  local line
  line=$(printf '%5d s  %s' $((SECONDS - start)) "$name")
  parts_summary+="$line"$'\n'
  if [ "$status" -ne 0 ]; then
    printf '\n%sStopped: "%s" failed (status %d): %s\n' "$parts_summary" "$name" "$status" "$*" >&2
    exit 1
  fi
}
parts_done() { printf '\n%s%5d s  in all\n%s\n' "$parts_summary" $((SECONDS - parts_start)) "$1"; }

# budget WARM COLD "what it is" command...: a part that fails if it takes more CPU seconds, which other work on the
# machine hardly changes. COLD holds if ccache had to compile more than a few files.
budget() {
  local warm=$1 allowed=$2 name=$3 before misses spent
  shift 2
  parts_cpu && before=$parts_seconds
  misses=$(parts_misses)
  part "$@"
  parts_cpu && spent=$((parts_seconds - before))
  misses=$(($(parts_misses) - misses))
  [ "$misses" -gt 5 ] || ! command -v ccache >/dev/null || allowed=$warm
  parts_summary+=$(printf '%5d CPU seconds of %d, compiled: %d' "$spent" "$allowed" "$misses")$'\n'
  if [ "$spent" -gt "$allowed" ]; then
    printf '\n%sStopped: "%s" took %d CPU seconds, its budget is %d\n' "$parts_summary" "$name" "$spent" "$allowed" >&2
    exit 1
  fi
}
# Of all commands so far, user and system, in parts_seconds. Not in a subshell, which would have no commands.
parts_cpu() {
  local file
  file=$(mktemp)
  times >"$file"
  parts_seconds=$(awk 'NR == 2 { gsub(/[ms]/, " "); print int($1 * 60 + $2 + $3 * 60 + $4) }' "$file")
  rm -f "$file"
}
parts_misses() { ccache --print-stats 2>/dev/null | awk '$1 == "cache_miss" { n = $2 } END { print n + 0 }'; }
