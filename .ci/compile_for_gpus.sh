#!/usr/bin/env bash
# The trainers are compiled for Hopper (sm_90), and with them every kernel that they use, without a warning. Where
# no GPU is usable, as on most machines that check changes, they say so in one sentence. Without nvcc there is
# nothing to do.
set -eu
cd "$(dirname "$0")/.."
nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null || true)
if [ -z "$nvcc" ]; then
  echo "skipped: there is no nvcc, so nothing is compiled for GPUs"
  exit 0
fi
cmake --preset cuda -DCMAKE_CUDA_ARCHITECTURES=90
cmake --build --preset cuda -j "$(nproc)" --target train_bert --target train_resnet50
ctest --preset cuda --output-on-failure -R '^cuda\.no_gpu_'
