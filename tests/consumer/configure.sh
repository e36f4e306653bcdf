#!/usr/bin/env bash
# configure.sh CMAKE SOURCE SCRATCH: checks the compile flags of presets that no other test configures, and of
# add_subdirectory. Compiles nothing.
set -eu
cmake=$1 source=$2 scratch=$3
rm -rf "$scratch"
mkdir -p "$scratch/project"
# configure OPTION...: runs CMake with these options.
configure() {
  "$cmake" "$@" -DCMAKE_DISABLE_FIND_PACKAGE_{CUDAToolkit,MPI}=ON >"$scratch/log" 2>&1 || {
    cat "$scratch/log"; exit 1; }
}
# flags WHAT TREE TARGET WANTED UNWANTED: checks that the flags of a file of TARGET match WANTED and not UNWANTED.
flags() {
  local line
  line=$(ninja -C "$2" -t commands "$3" | grep -m 1 -- ' -c ') || { echo "FAILED: $1 compiles nothing"; exit 1; }
  if ! grep -qE -e "$4" <<<"$line" || grep -qE -e "$5" <<<"$line"; then
    echo "FAILED: $1 needs flags like '$4' and none like '$5': $line"
    exit 1
  fi
}
cd "$source"
for preset in native debug; do configure --preset $preset -B "$scratch/$preset" -DDHP_TESTS=OFF -DDHP_EXAMPLES=OFF; done
flags "--preset native" "$scratch/native" dhp_cpu_compiled " -O[23] .*-march=native" " -g "
flags "--preset debug" "$scratch/debug" dhp_cpu_compiled " -g " " -(DNDEBUG|O[1-3]|march=native)"

cat >"$scratch/project/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.22)
project(solver CXX)
add_subdirectory("$source" dhp)
add_executable(solver "$source/tests/consumer/cpu.cpp")
target_link_libraries(solver PRIVATE dhp::cpu)
END
configure -S "$scratch/project" -B "$scratch/subdirectory" -G Ninja
flags add_subdirectory "$scratch/subdirectory" solver "$source/include\"? " " -(march=|O|W)"
built=$(ninja -C "$scratch/subdirectory" -t commands | grep -c -- ' -c ')
[ "$built" = 1 ] || { echo "FAILED: add_subdirectory: $built files are compiled for a program of one"; exit 1; }

printf '%s\n' 'cmake_minimum_required(VERSION 3.22)' 'project(solver CXX)' \
  'find_package(dhp CONFIG REQUIRED COMPONENTS cpu gpu)' >"$scratch/project/CMakeLists.txt"
"$cmake" -S "$scratch/project" -B "$scratch/component" -Ddhp_DIR="$scratch/native" >"$scratch/log" 2>&1 || true
grep -q "dhp has no component gpu" "$scratch/log" || { echo "FAILED: a wrong component is not named"; exit 1; }
