#!/usr/bin/env bash
# nccl_ranks.sh PROGRAM: runs PROGRAM's cases of tests/comm/nccl/nccl_comm.cpp as several ranks on one GPU, then each
# case in which ranks go missing, as a separate start. Prints 'passed: ...' for each start, or its output and
# 'FAILED: ...'. Takes at most 400 s. Exits with 77 without a GPU. NVIDIA_GPUS: pattern of the GPUs' device files.
set -u
program=$1
ranks=$(dirname "$0")/ranks.sh
if ! compgen -G "${NVIDIA_GPUS:-/dev/nvidia[0-9]*}" >/dev/null; then
  echo "skipped: there is no NVIDIA GPU"
  exit 77
fi
status=0
cases() {  # cases WHAT SECONDS RANKS FILTER...: prints whether all ranks passed without a skipped case
  local what=$1 said failed=0
  said=$(DHP_RANKS_SECONDS=$2 "$ranks" "$3" "$program" '--source-file=*/nccl_comm.cpp' "${@:4}" 2>&1) || failed=1
  case $what in
    *"a rank that"*)  # rank 1 ends early, so rank 0 must report
      failed=0
      grep -q '^\[0\].*Status: SUCCESS' <<<"$said" || failed=1 ;;
  esac
  ! grep -q 'skipped: ' <<<"$said" || failed=1  # there is a GPU, and there are other ranks
  ! grep -q 'test cases: *0 ' <<<"$said" || failed=1
  if [ $failed -eq 0 ]; then
    echo "passed: $what"
    return
  fi
  echo "$said"
  echo "FAILED: $what"
  status=1
}
cases "every collective, 2 ranks" 120 2
cases "every collective, 3 ranks" 120 3
cases "calls in unequal order" 60 2 --no-skip '--test-case=nccl end: *unequal order*'
cases "a rank that is killed" 45 2 --no-skip '--test-case=nccl end: *killed*'
cases "a rank that stops" 55 2 --no-skip '--test-case=nccl end: *stops*'
exit $status
