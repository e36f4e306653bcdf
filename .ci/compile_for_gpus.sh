#!/usr/bin/env bash
# Everything that a GPU runs is compiled: all kernels, the trainers and their tests, for Hopper (sm_90), without
# a warning. Where no GPU is usable, as on most machines that check changes, its tests are skipped and the
# trainers say so in one sentence. Without nvcc there is nothing to do.
set -eu
cd "$(dirname "$0")/.."
nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null || true)
if [ -z "$nvcc" ]; then
  echo "skipped: there is no nvcc, so nothing is compiled for GPUs"
  exit 0
fi
cmake --preset cuda -DCMAKE_CUDA_ARCHITECTURES=90
cmake --build --preset cuda -j "$(nproc)"
ctest --preset cuda -j "$(nproc)" --output-on-failure
