#!/usr/bin/env bash
# ranks.sh N COMMAND...: runs COMMAND as ranks 0 to N-1, all on one GPU, and waits for them. Each line of output begins
# with its rank. Exits with 0 if every rank does.
# NCCL rejects two ranks on one GPU of a host, so here each process poses as a separate host, and the processes
# communicate by loopback sockets. A collective takes milliseconds, or tens of them with four ranks, so this tests
# results and not speed.
# DHP_RANKS_SECONDS: time limit of each rank, after which it is killed (default 120).
set -u
if [ $# -lt 2 ] || ! [[ $1 =~ ^[1-9][0-9]*$ ]]; then
  echo "usage: ranks.sh N COMMAND..." >&2
  exit 2
fi
ranks=$1
shift
seconds=${DHP_RANKS_SECONDS:-120}
folder=$(mktemp -d "${TMPDIR:-/tmp}/dhp_ranks_XXXXXX") || exit 1
trap 'rm -rf "$folder"' EXIT
: >"$folder/nccl.conf"

unset NCCL_COMM_ID
export WORLD_SIZE=$ranks LOCAL_RANK=0 DHP_JOB=${folder##*_}
export MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + $$ % 10000))
export NCCL_CONF_FILE=$folder/nccl.conf NCCL_DEBUG=${NCCL_DEBUG:-WARN}
export NCCL_NET=Socket NCCL_NET_PLUGIN=none NCCL_SOCKET_IFNAME=lo NCCL_SOCKET_FAMILY=AF_INET
export NCCL_IB_DISABLE=1 NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1
export NCCL_NVLS_ENABLE=0 NCCL_MNNVL_ENABLE=0 NCCL_GIN_ENABLE=0
export NCCL_CUMEM_ENABLE=0 NCCL_CUMEM_HOST_ENABLE=0
export NCCL_ALGO=Ring NCCL_PROTO=Simple NCCL_MAX_CTAS=2 NCCL_BUFFSIZE=1048576
export NCCL_RAS_ENABLE=0
export NCCL_MULTI_RANK_GPU_ENABLE=1  # NCCL 2.30 and later; others do not know it
export CUDA_MODULE_LOADING=EAGER CUDA_DEVICE_MAX_CONNECTIONS=32

one_rank() {  # one_rank RANK COMMAND...
  local rank=$1
  shift
  export RANK=$rank NCCL_HOSTID="$DHP_JOB-rank$rank"
  timeout --kill-after=5 "$seconds" "$@" 2>&1 | sed -u "s/^/[$rank] /"
  local status=${PIPESTATUS[0]}
  [ "$status" -ne 124 ] || echo "[$rank] ended after its $seconds s"
  return "$status"
}

processes=()
for ((rank = 0; rank < ranks; ++rank)); do
  one_rank "$rank" "$@" &
  processes+=($!)
done
failed=0
for ((rank = 0; rank < ranks; ++rank)); do
  wait "${processes[rank]}"
  status=$?
  [ "$status" -eq 0 ] || { echo "rank $rank ended with status $status"; failed=1; }
done
exit "$failed"
