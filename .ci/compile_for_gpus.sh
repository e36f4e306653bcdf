#!/usr/bin/env bash
# The trainers and the tests for GPUs, which have every kernel in every type, are compiled for Hopper (sm_90) without a
# warning. Then what can be tested without a GPU is. With "all" everything of preset cuda is, the lessons and the other
# programs too: what needs a GPU says that it was skipped. Without nvcc there is nothing to do.
set -eu
cd "$(dirname "$0")/.."
nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null || true)
if [ -z "$nvcc" ]; then
  echo "skipped: there is no nvcc, so nothing is compiled for GPUs"
  exit 0
fi
# Without -O: the host's part is hardly run here, and device code is optimised all the same.
cmake --preset cuda -DCMAKE_CUDA_ARCHITECTURES=90 -DCMAKE_CUDA_FLAGS_RELEASE=-DNDEBUG -DDHP_BENCH=ON -DDHP_UNIT_FILES=12
targets=() tests=()
if [ "${1:-}" != all ]; then
  targets=(--target train_bert train_resnet50 test_cuda test_cuda_whole test_cuda_libraries
    test_comm_libraries gpu_present)
  tests=(-R '^cuda\.(no_gpu_.*|libraries|reduce)$|^structure\.cases_of_(cuda|comm)(_libraries|_whole)?$')
fi
cmake --build --preset cuda -j "$(nproc)" "${targets[@]}"
ctest --preset cuda --output-on-failure "${tests[@]}"
