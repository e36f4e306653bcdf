#!/usr/bin/env bash
# on_gpu.sh GPU_PRESENT COMMAND...: runs the command where a GPU is usable; elsewhere says why not, and ends
# with 77, which ctest shows as skipped.
"$1" || exit 77
shift
exec "$@"
