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
parts_done() {
  printf '\n%s%5d s  in all\n%s\n' "$parts_summary" $((SECONDS - parts_start)) "$1"
  [ -z "$parts_left_out" ] || printf 'Left out, because this machine is slow:%s\n' "$parts_left_out"
}

# budget WARM COLD "description" command...: a part that fails if it takes more CPU time than its budget. The unit is
# the CPU time of one compile of tests/budget/peer.cpp on this machine, so a slow machine or other load hardly changes
# the result. COLD is the budget if ccache had to compile more than a few files, else WARM. If the caller has set
# parts_limit_s, a part that would probably end later than so many seconds after the start is left out; most parts take
# three quarters of their budget.
parts_limit_s=
parts_unit=
parts_left_out=
budget() {
  local warm=$1 allowed=$2 name=$3 before misses spent
  shift 2
  local end_s=$((SECONDS - parts_start)) units
  [ -z "$parts_unit" ] || end_s=$(awk "BEGIN { print int($end_s + 0.75 * $allowed * $parts_unit / $(nproc)) }")
  if [ -n "$parts_limit_s" ] && [ "$end_s" -gt "$parts_limit_s" ]; then
    parts_left_out+=" $name;"
    return
  fi
  parts_cpu && before=$parts_seconds
  misses=$(parts_misses)
  part "$@"
  parts_cpu && spent=$((parts_seconds - before))
  misses=$(($(parts_misses) - misses))
  [ "$misses" -gt 5 ] || ! command -v ccache >/dev/null || allowed=$warm
  parts_unit=$(parts_measure_unit) || exit 1
  units=$(awk "BEGIN { print int($spent / $parts_unit) }")
  parts_summary+=$(printf '%5d CPU seconds, %d compiles of the sample, budget %d, files compiled: %d' \
    "$spent" "$units" "$allowed" "$misses")$'\n'
  if [ "$units" -gt "$allowed" ]; then
    printf '\n%sStopped: "%s" took as much CPU time as %d compiles of tests/budget/peer.cpp, its budget is %d\n' \
      "$parts_summary" "$name" "$units" "$allowed" >&2
    exit 1
  fi
}
# Prints the CPU seconds of one compile of the sample while all cores compile it.
parts_measure_unit() {
  seq $((2 * $(nproc))) | xargs -P "$(nproc)" -I TURN bash -c \
    'TIMEFORMAT="%U %S"; time ${CXX:-c++} -std=c++20 -O2 -c -o /dev/null tests/budget/peer.cpp' 2>&1 |
    awk 'NF == 2 { seconds += $1 + $2; ++n } END { if (n) print seconds / n; else exit 1 }'
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
