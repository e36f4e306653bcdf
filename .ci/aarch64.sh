#!/usr/bin/env bash
# Tests dhp on 64-bit Arm without such a machine: Debian's g++ cross-compiles tests and lessons, whose ranks are
# threads, and qemu runs them. This tests results, not speed.
set -eu
cd "$(dirname "$0")/.."
bash .ci/install_packages.sh cmake ninja-build g++-aarch64-linux-gnu qemu-user-static doctest-dev nlohmann-json3-dev
tests=(core device tensor ops nn optim)
lessons=(2_one_layer 5_sharded_data 7_heads_vocabulary_channels 10_all_three 18_attention_around_a_ring)
cmake --preset aarch64
cmake --build build/aarch64 -j "$(nproc)" --target "${tests[@]/#/test_}" "${lessons[@]/#/lesson_}"
# check NAME: runs that test or lesson. Prints its output when it has ended, because several run at once.
check() {
  local said status=0 command=("build/aarch64/examples/lesson_$1")
  [ ! -e "build/aarch64/tests/test_$1" ] ||  # qemu does not limit memory
    command=("build/aarch64/tests/test_$1" --source-file-exclude='*_slow.cpp' --test-case-exclude='*a thread cannot be*')
  said=$(qemu-aarch64-static -L /usr/aarch64-linux-gnu "${command[@]}" 2>&1) || status=$?
  printf '%s: status %d\n%s\n' "$1" "$status" "$(tail -n 40 <<<"$said")"
  return $status
}
export -f check
# The longest ones start first.
printf '%s\n' ops nn tensor "${lessons[@]}" core device optim | xargs -P "$(nproc)" -I NAME bash -c 'check NAME'
