#!/usr/bin/env bash
# nccl_ranks.sh PROGRAM: the cases of tests/comm/nccl.cpp in PROGRAM, as several ranks on one GPU; then those where
# ranks go missing, each of which is a start of its own. 77 where there is no GPU.
set -u
program=$1
ranks=$(dirname "$0")/ranks.sh
if ! compgen -G "/dev/nvidia[0-9]*" >/dev/null; then
  echo "skipped: there is no NVIDIA GPU"
  exit 77
fi
status=0
cases() {  # cases RANKS FILTER...
  DHP_RANKS_SECONDS=${DHP_RANKS_SECONDS:-240} "$ranks" "$1" "$program" '--source-file=*/nccl.cpp' "${@:2}"
}
for n in 2 3; do
  cases "$n" || { echo "failed with $n ranks"; status=1; }
done
cases 2 --no-skip '--test-case=nccl end: *unequal order*' || { echo "failed: unequal order"; status=1; }
for fate in killed stops; do  # rank 1 does not live to tell; rank 0 must
  said=$(DHP_RANKS_SECONDS=90 cases 2 --no-skip "--test-case=nccl end: *$fate*")
  echo "$said"
  grep -q '^\[0\].*Status: SUCCESS' <<<"$said" || { echo "failed: a rank that $fate"; status=1; }
done
exit $status
