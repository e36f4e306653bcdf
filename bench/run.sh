#!/usr/bin/env bash
# Runs all benchmarks; writes a table and a JSON file each: bash bench/run.sh [DIRECTORY]
# PYTHON names the interpreter with PyTorch, the peer; by default the first that has it.
set -u
out=${1:+$(realpath -m -- "$1")}
cd "$(dirname "$0")/.." || exit 1
. .ci/parts.sh
out=${out:-build/bench}
mkdir -p "$out" || exit 1
python=${PYTHON:-}
for candidate in python3 /usr/bin/python3; do
  if [ -z "$python" ] && "$candidate" -c 'import torch' 2> /dev/null; then python=$candidate; fi
done
table() {
  local name=$1 status
  shift
  "$@" | tee "$out/$name.txt"
  status=${PIPESTATUS[0]}
  [ "$status" -eq 77 ] || return "$status"  # 77: the peer is missing; the bench has said so
}
part "install what is missing" bash .ci/install_packages.sh \
  git g++ cmake ninja-build ccache doctest-dev libcli11-dev nlohmann-json3-dev python3 \
  optional:libdnnl-dev optional:libeigen3-dev optional:valgrind libssl-dev optional:libgloo-dev \
  optional:libopenmpi-dev optional:openmpi-bin optional:dataset-fashion-mnist optional:wordnet-base
part "configure" cmake --preset release -DDHP_BENCH=ON
part "build" cmake --build --preset release -j "$(nproc)" --target benches train_bert train_resnet50
programs=build/release/bench
part "kernels against oneDNN and Eigen" table kernels $programs/bench_kernels "$out/kernels.json"
part "passes over memory against a copy" table passes $programs/bench_passes
part "the same in bf16" table passes_bf16 $programs/bench_passes bf16
part "a training step against PyTorch" table training_step \
  "${python:-python3}" bench/training_step.py $programs/bench_training_step --json "$out/training_step.json"
part "ZeRO against PyTorch's" table zero \
  "${python:-python3}" bench/zero.py build/release/examples/train_bert $programs/bench_zero --json "$out/zero.json"
part "less exchange between replicas" table older_ideas \
  python3 bench/older_ideas.py build/release/examples/train_resnet50 build/release/examples/train_bert \
  --json "$out/older_ideas.json" --curves "$out/older_ideas"
part "instructions of the wrappers" table wrapper_cost \
  "${python:-python3}" bench/wrapper_cost.py $programs/bench_wrapper_cost --json "$out/wrapper_cost.json"
part "two ranks against Gloo, MPI and memcpy" table communication \
  "${python:-python3}" bench/communication.py $programs/bench_communication --json "$out/communication.json"
part "saves beside training" table checkpoint $programs/bench_checkpoint "$out/saved" 3 1 "$out/checkpoint.json"
rm -rf "$out/saved"
part "memory of saves and loads" table checkpoint_memory \
  "${python:-python3}" bench/checkpoint.py build/release/examples/train_bert --json "$out/checkpoint_memory.json"
part "initial values" table initial_values $programs/bench_initial_values "$(nproc)"
if [ -x $programs/bench_plans ]; then
  for process in first later; do
    part "plans of cuDNN, $process process" table "plans_$process" $programs/bench_plans \
      build/release/tests/driver/libcuda.so.1 "$out/plans" "$(nproc)"
  done
  rm -rf "$out/plans"
fi
parts_done "Tables and JSON are in $out."
