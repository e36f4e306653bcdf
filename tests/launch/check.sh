#!/usr/bin/env bash
# check.sh SCRIPT LAUNCHER PRINT_RANK: SCRIPT must start ranks 0 to 2 that know their number of ranks, their meeting
# address and their job's name. It must fail if a rank fails, and leave no files or processes behind.
set -u
script=$1 launcher=$2 program=$3
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/tmp"
export TMPDIR=$folder/tmp
# The ranks must not see the variables of a launcher that started this script.
for name in $(compgen -e | grep -E '^(DHP_(RANK|WORLD|LOCAL|MASTER|JOB|RENDEZ)|(LOCAL_)?(RANK|WORLD_SIZE)$|MASTER_)'); do
  unset "$name"
done
wrong=0
say() { echo "$*"; wrong=1; }

# shellcheck disable=SC2016  # the ranks' shells expand it
"$script" 3 bash -c '
  said=$("$0") || exit
  echo "$said"
  if [ "${TORCHELASTIC_USE_AGENT_STORE:-}" = True ] && [[ $said = *":$MASTER_PORT,"* ]]; then
    echo "port $MASTER_PORT is that of torchrun"
  fi' "$program" >"$folder/said" 2>"$folder/errors"
status=$?
cat "$folder/errors" "$folder/said"
[ $status -ne 77 ] || exit 77
[ $status -eq 0 ] || say "the status is $status"
grep -q "is that of torchrun" "$folder/said" && say "the port of the ranks is that of torchrun"
grep "^rank " "$folder/said" | sort >"$folder/lines"
[ "$(wc -l <"$folder/lines")" -eq 3 ] || say "there are not 3 ranks"
for rank in 0 1 2; do
  grep -qE "^rank $rank of 3, local $rank of 3, launcher $launcher, master [^ ,:]+:[1-9][0-9]*, job [^ ]+$" \
    "$folder/lines" || say "rank $rank of 3 of $launcher has not said who it is"
done
[ "$(sed 's/.*, master //' "$folder/lines" | sort -u | wc -l)" -eq 1 ] ||
  say "the ranks do not agree on where they meet"

# shellcheck disable=SC2016
"$script" 2 bash -c 'exit 7' >"$folder/said" 2>&1
status=$?
{ [ $status -ne 0 ] && [ $status -ne 77 ]; } || say "ranks fail, but the status is $status"
"$script" 0 true 2>/dev/null
[ $? -eq 2 ] || say "0 ranks are not refused"

left=$(ls -A "$TMPDIR")
[ -z "$left" ] || say "there is left in TMPDIR: $left"
# All started processes have this TMPDIR in their environment. The last ones may take a moment to end.
export -n TMPDIR
for _ in {1..600}; do
  still=$(grep -lsF "TMPDIR=$TMPDIR" /proc/[0-9]*/environ)
  [ -n "$still" ] || break
  sleep 0.1
done
[ -z "$still" ] || say "still running: $(tr "\n" " " <<<"$still")"
exit $wrong
