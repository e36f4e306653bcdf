#!/usr/bin/env bash
# dhp on 64-bit Arm without such a machine: Debian's g++ cross-compiles tests and lessons, whose ranks are threads, and qemu
# runs them. That says what is computed, and nothing of how fast.
set -eu
cd "$(dirname "$0")/.."
bash .ci/install_packages.sh cmake ninja-build g++-aarch64-linux-gnu qemu-user-static doctest-dev nlohmann-json3-dev
tests=(core device tensor ops nn optim)
lessons=(2_one_layer 5_sharded_data 7_heads_vocabulary_channels 10_all_three 18_attention_around_a_ring)
cmake --preset aarch64
cmake --build build/aarch64 -j "$(nproc)" --target "${tests[@]/#/test_}" "${lessons[@]/#/lesson_}"
on_arm() { qemu-aarch64-static -L /usr/aarch64-linux-gnu "$@"; }
for name in "${tests[@]}"; do  # qemu does not limit memory
  on_arm "build/aarch64/tests/test_$name" --source-file-exclude='*_slow.cpp' --test-case-exclude='*a thread cannot be*'
done
for name in "${lessons[@]}"; do
  on_arm "build/aarch64/examples/lesson_$name" >/dev/null
  echo "lesson $name: passed"
done
