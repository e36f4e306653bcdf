#!/usr/bin/env bash
# Compiles the trainers and the tests for GPUs, which contain every kernel in every type, for Hopper (sm_90) without a
# warning, and runs the tests that need no GPU. An interpreter runs the kernels as nvcc compiles them (tests/cuda/ptx);
# it must run all kernels of the trainers. With the argument "all", builds and tests everything of preset cuda; tests
# that need a GPU report that they were skipped. Without nvcc the script does nothing.
set -eu
cd "$(dirname "$0")/.."
nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null || true)
if [ -z "$nvcc" ]; then
  echo "skipped: there is no nvcc, so nothing is compiled for GPUs"
  exit 0
fi
# Without -O, because host code hardly runs here, and nvcc optimizes device code anyway.
cmake --preset cuda -DCMAKE_CUDA_ARCHITECTURES=90 -DCMAKE_CUDA_FLAGS_RELEASE=-DNDEBUG -DDHP_BENCH=ON -DDHP_UNIT_FILES=12
targets=() tests=()
if [ "${1:-}" != all ]; then
  targets=(--target train_bert train_resnet50 test_cuda test_cuda_whole test_cuda_libraries
    test_comm_libraries gpu_present)
  tests=(-R '^cuda\.(no_gpu_.*|reduce)$|^structure\.cases_of_(cuda|comm)(_libraries|_whole)?$')
fi
cmake --build --preset cuda -j "$(nproc)" "${targets[@]}"
ctest --preset cuda --output-on-failure "${tests[@]}"

cmake --preset release -DDHP_UNIT_FILES=24
cmake --build --preset release -j "$(nproc)" --target test_ptx
table=build/release/tests/cuda/kernels.tsv
# In CI, tests/run.sh --all has made the table of these programs.
[ -z "$(find build/release/tests/cuda -maxdepth 1 \( -name '*.ptx' -o -name test_ptx \) -newer "$table" 2>&1)" ] ||
  ctest --preset release --output-on-failure -V -R '^cuda\.ptx$'
awk -F '\t' 'NR > 1 && $2 > 0 { print "dhp::detail::cuda::" $1 }' "$table" | sort >"$table.ran"
nm -C build/cuda/examples/train_{bert,resnet50} | sed -n 's/.* void dhp::detail::cuda::run_kernel<//p' |
  sed 's/ *>(.*//' | sort -u >"$table.trainers"
echo "$(wc -l <"$table.trainers") kernels of the trainers; no test runs, as nvcc compiles them:"
comm -13 "$table.ran" "$table.trainers"
[ -s "$table.trainers" ] && [ -z "$(comm -13 "$table.ran" "$table.trainers")" ]
