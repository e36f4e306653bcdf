#!/usr/bin/env bash
# Tests ranks.sh and nccl_ranks.sh; needs no GPU.
set -u
ranks=$(dirname "$0")/ranks.sh
. "$(dirname "$0")/../support/expect.sh"
# shellcheck disable=SC2016  # the ranks' shells expand it
who='echo "I am $RANK of $WORLD_SIZE on $NCCL_HOSTID" | sed "s/ on .*-rank/ on /"'
expect 0 "[2] I am 2 of 3 on 2" "$ranks" 3 bash -c "$who"
expect 0 "[0] I am 0 of 1 on 0" "$ranks" 1 bash -c "$who"
# shellcheck disable=SC2016
expect 1 "rank 1 ended with status 7" "$ranks" 3 bash -c 'exit $((RANK == 1 ? 7 : 0))'
# shellcheck disable=SC2016
expect 0 "[0] hello from 1" "$ranks" 2 bash -c '
  if [ "$RANK" = 1 ]; then echo "hello from 1" >"${NCCL_CONF_FILE%/*}/hello"; exit; fi
  for ((i = 0; i < 1200; ++i)); do [ -s "${NCCL_CONF_FILE%/*}/hello" ] && break; sleep 0.05; done
  cat "${NCCL_CONF_FILE%/*}/hello"'
# shellcheck disable=SC2016
DHP_RANKS_SECONDS=1 expect 1 "[1] ended after its 1 s" "$ranks" 2 bash -c \
  'if [ "$RANK" = 1 ]; then exec sleep 60; fi'
expect 2 "usage: ranks.sh N COMMAND..." "$ranks" 0 true
expect 2 "usage: ranks.sh N COMMAND..." "$ranks" 2

# --- nccl_ranks.sh, with programs that only print doctest's output.
nccl=$(dirname "$0")/nccl_ranks.sh
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
program() {  # program LINE...: makes the program that each rank runs
  printf '#!/usr/bin/env bash\n' >"$folder/program"
  printf '%s\n' "$@" >>"$folder/program"
  chmod +x "$folder/program"
}
program 'echo "Status: SUCCESS!"'
NVIDIA_GPUS=$folder/none expect 77 "skipped: there is no NVIDIA GPU" "$nccl" "$folder/program"
export NVIDIA_GPUS=$folder/program
expect 0 "passed: every collective, 3 ranks" "$nccl" "$folder/program"
expect 0 "passed: a rank that is killed" "$nccl" "$folder/program"
# shellcheck disable=SC2016
program 'if [ "$RANK" = 1 ]; then kill -KILL $$; fi' 'echo "Status: SUCCESS!"'
expect 1 "passed: a rank that is killed" "$nccl" "$folder/program"
expect 1 "FAILED: calls in unequal order" "$nccl" "$folder/program"
program 'echo "MESSAGE: skipped: no NVIDIA GPU is usable"' 'echo "Status: SUCCESS!"'
expect 1 "FAILED: every collective, 2 ranks" "$nccl" "$folder/program"
expect 1 "FAILED: a rank that stops" "$nccl" "$folder/program"
program 'echo "test cases: 0 | 0 passed"' 'echo "Status: SUCCESS!"'
expect 1 "FAILED: calls in unequal order" "$nccl" "$folder/program"
exit $status
