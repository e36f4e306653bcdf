# Sourced by scripts that run in parts: `part "description" command...` runs the command and records its time. If the
# command fails, it ends the script with one sentence.
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

# budget WARM COLD "description" command...: a part that fails if it takes more CPU seconds than its budget. Other load
# hardly changes CPU seconds. COLD is the budget if ccache had to compile more than a few files, else WARM.
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
# Sets parts_seconds to the CPU seconds (user and system) of all commands so far. A subshell would count none of them.
parts_cpu() {
  local file
  file=$(mktemp)
  times >"$file"
  parts_seconds=$(awk 'NR == 2 { gsub(/[ms]/, " "); print int($1 * 60 + $2 + $3 * 60 + $4) }' "$file")
  rm -f "$file"
}
parts_misses() { ccache --print-stats 2>/dev/null | awk '$1 == "cache_miss" { n = $2 } END { print n + 0 }'; }
