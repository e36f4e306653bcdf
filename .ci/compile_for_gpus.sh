#!/usr/bin/env bash
# The trainers, the lesson that has all axes and the tests of cuda/ and NCCL are compiled for Hopper (sm_90) without a
# warning, and with them all kernels in all types. Then what can be tested without a GPU is; the rest says that
# it was skipped. With "all" everything of preset cuda is compiled. Without nvcc there is nothing to do.
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
  targets=(--target train_bert train_resnet50 lesson_6_all_three gpu_present
    test_cuda test_cuda_libraries test_comm_libraries test_nccl_fake test_guest_fake)
  tests=(-R '^(cuda|comm|structure)\.|^lesson\.6')
fi
cmake --build --preset cuda -j "$(nproc)" "${targets[@]}"
ctest --preset cuda --output-on-failure "${tests[@]}"
