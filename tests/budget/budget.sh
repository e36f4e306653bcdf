#!/usr/bin/env bash
# budget.sh SECONDS MEGABYTES OBJECT COMPILER ARG...                       or
# budget.sh SECONDS MEGABYTES OBJECT --recorded COMPILE_COMMANDS SOURCE
# Compiles once more and compares CPU seconds (user + system) and memory with the budget.
set -u
seconds=$1 megabytes=$2 object=$3
shift 3
if [ -n "${DHP_SANITIZE:-}" ] || [ "${BUILD_TYPE:-}" != Release ]; then
  echo "skipped: budgets are for optimised builds without sanitizers"
  exit 77
fi
[ -x /usr/bin/time ] || { echo "skipped: there is no /usr/bin/time (Debian: time)"; exit 77; }
if [ "$1" = --recorded ]; then
  # CMake writes one key a line, the command before the file; outputs are replaced by our own.
  command=$(awk -v file="\"$3\"" '
    /^ *"command":/ { sub(/^ *"command": "/, ""); sub(/",$/, ""); command = $0 }
    /^ *"file":/ && index($0, file) { print command; exit }' "$2" | sed -E 's/\\"/"/g; s/ -o [^ ]+//')
  [ -n "$command" ] || { echo "$3 is not in $2"; exit 1; }
  eval "set -- $command"
else
  set -- "$@" -c
fi
export CCACHE_DISABLE=1
# Other work on the machine can only make it look worse: the best of three decides.
for attempt in 1 2 3; do
  /usr/bin/time -o "$object.time" -f '%U %S %M' "$@" -o "$object" || exit 1
  read -r user system kilobytes < <(tail -n 1 "$object.time")
  rm -f "$object"
  echo "attempt $attempt: $user + $system CPU seconds of $seconds, $((kilobytes / 1024)) MB of $megabytes"
  if awk "BEGIN { exit !($user + $system <= $seconds && $kilobytes <= $megabytes * 1024) }"; then
    exit 0
  fi
done
exit 1
