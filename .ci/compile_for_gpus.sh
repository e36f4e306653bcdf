#!/usr/bin/env bash
# The trainers and the tests of cuda/ and NCCL are compiled for Hopper (sm_90) without a warning, and with them all
# kernels in all types. Then what can be tested without a GPU is. With "all" everything of preset cuda is compiled
# and tested: what needs a GPU says that it was skipped. Without nvcc there is nothing to do.
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
  # Not the program test_cuda: everything_slow.cpp, with the Cpu's twin of every kernel, costs more than five others.
  mapfile -t objects < <(ninja -C build/cuda -t targets all |
    sed -n '/everything_slow/d; s|^\(tests/CMakeFiles/test_cuda\.dir/.*\.o\):.*|\1|p')
  [ ${#objects[@]} -gt 0 ] || { echo "build/cuda has no objects of test_cuda" >&2; exit 1; }
  targets=(--target train_bert train_resnet50
    test_cuda_libraries test_comm_libraries test_nccl_fake test_guest_fake "${objects[@]}")
  tests=(-R '^cuda\.(no_gpu_.*|libraries|.*_fake)$|^structure\.cases_of_(cuda_libraries|.*_fake)$')
fi
cmake --build --preset cuda -j "$(nproc)" "${targets[@]}"
ctest --preset cuda --output-on-failure "${tests[@]}"
