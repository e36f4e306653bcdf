#!/usr/bin/env bash
# on_gpu.sh GPU_PRESENT [GPUS] COMMAND...: runs the command if GPUS (default 1) GPUs are usable. Otherwise it prints why
# they are not, and exits with 77, which ctest shows as skipped.
present=$1 gpus=1
shift
[[ $1 =~ ^[0-9]+$ ]] && { gpus=$1; shift; }
"$present" "$gpus" || exit 77
exec "$@"
