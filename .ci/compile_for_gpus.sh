#!/usr/bin/env bash
# The trainers, and with them every kernel that they use, and the tests of cuDNN, cuBLASLt and NCCL are compiled for
# Hopper (sm_90) without a warning. Then what can be tested without a GPU is. With "all" everything of preset cuda is
# compiled and tested, which takes an hour on two cores: what needs a GPU says that it was skipped. Without nvcc there is
# nothing to do.
set -eu
cd "$(dirname "$0")/.."
nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null || true)
if [ -z "$nvcc" ]; then
  echo "skipped: there is no nvcc, so nothing is compiled for GPUs"
  exit 0
fi
cmake --preset cuda -DCMAKE_CUDA_ARCHITECTURES=90
targets=() tests=()
if [ "${1:-}" != all ]; then
  targets=(--target train_bert train_resnet50 test_cuda_libraries test_comm_libraries)
  tests=(-R '^cuda\.(no_gpu_.*|libraries)$|^structure\.cases_of_cuda_libraries$')
fi
cmake --build --preset cuda -j "$(nproc)" "${targets[@]}"
ctest --preset cuda --output-on-failure "${tests[@]}"
