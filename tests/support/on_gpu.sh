#!/usr/bin/env bash
# on_gpu.sh GPU_PRESENT [GPUS] COMMAND...: runs the command where that many GPUs (1) are usable; elsewhere says why not,
# and ends with 77, which ctest shows as skipped.
present=$1 gpus=1
shift
[[ $1 =~ ^[0-9]+$ ]] && { gpus=$1; shift; }
"$present" "$gpus" || exit 77
exec "$@"
