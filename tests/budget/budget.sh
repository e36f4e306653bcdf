#!/usr/bin/env bash
# budget.sh TIMES MEGABYTES OBJECT PEER COMPILER ARG...                       or
# budget.sh TIMES MEGABYTES OBJECT PEER --recorded COMPILE_COMMANDS SOURCE
# Compiles a source and PEER in turns. The source may take MEGABYTES of memory, and TIMES as many CPU seconds (user +
# system) as PEER. The limit is no number of seconds, because these depend on the machine and its load.
set -u
times=$1 megabytes=$2 object=$3 peer=$4
shift 4
if [ -n "${DHP_SANITIZE:-}" ] || [ "${BUILD_TYPE:-}" != Release ]; then
  echo "skipped: budgets are for optimized builds without sanitizers"
  exit 77
fi
[ -x /usr/bin/time ] || { echo "skipped: there is no /usr/bin/time (Debian: time)"; exit 77; }
if [ "$1" = --recorded ]; then
  # CMake writes one key per line, the command before the file. The recorded output file is removed.
  command=$(awk -v file="\"$3\"" '
    /^ *"command":/ { sub(/^ *"command": "/, ""); sub(/",$/, ""); command = $0 }
    /^ *"file":/ && index($0, file) { print command; exit }' "$2" | sed -E 's/\\"/"/g; s/ -o [^ ]+//')
  [ -n "$command" ] || { echo "$3 is not in $2"; exit 1; }
  eval "set -- $command"
else
  set -- "$@" -c
fi
export CCACHE_DISABLE=1
# Prints CPU seconds and kilobytes of a command that writes $object.
measure() {
  /usr/bin/time -o "$object.time" -f '%U %S %M' "$@" -o "$object" || exit 1
  tail -n 1 "$object.time" | awk '{ print $1 + $2, $3 }'
  rm -f "$object"
}
# Other load can only worsen a measurement, so the best of three decides.
for attempt in 1 2 3; do
  read -r peer_seconds _ < <(measure "${CXX:-c++}" -std=c++20 -O2 -c "$peer")
  read -r seconds kilobytes < <(measure "$@")
  echo "attempt $attempt: $seconds CPU seconds, the standard library's sample $peer_seconds, budget $times times" \
    "that; $((kilobytes / 1024)) MB of $megabytes"
  if awk "BEGIN { exit !($seconds <= $times * $peer_seconds && $kilobytes <= $megabytes * 1024) }"; then
    exit 0
  fi
done
exit 1
