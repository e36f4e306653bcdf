#!/usr/bin/env bash
# two_files.sh SOURCE SCRATCH COMPILER...: builds two files without a build system; one instantiates the templates.
set -eu
source=$1 scratch=$2 && shift 2
rm -rf "$scratch"
mkdir -p "$scratch"
cd "$scratch"
echo '#include <dhp/cpu_instances.ipp>' >dhp.cpp
cat >program.cpp <<'END'
#include <dhp/train/memory_plan.hpp>
#include <dhp/cpu_declared.hpp>
#include <toy.hpp>
int main() {
  const auto losses = toy::on_each_rank(2, [](dhp::Comm<toy::Dev> world) {
    return toy::train(world, toy::options({.data = 2}), 2, 10);
  });
  return losses[0].back() < losses[0].front() && losses[0] == losses[1] ? 0 : 1;
}
END
"$@" -std=c++20 -O0 -MD -I "$source/include" -c dhp.cpp
"$@" -std=c++20 -O0 -MD -I "$source/include" -I "$source/examples/lessons" -c program.cpp
"$@" program.o dhp.o -pthread -o program
./program
# The instances of the list must be compiled in dhp.o only.
for name in gemm_on update_weights_on _ZN3dhp14ParameterStoreINS_3CpuEE5place \
  _ZN3dhp6detail11LinearPartsINS_3CpuEE7forward; do
  if nm program.o | grep " [WT] .*$name"; then echo "program.o has $name, too"; exit 1; fi
  nm dhp.o | grep -q " W .*$name" || { echo "dhp.o lacks $name"; exit 1; }
done
# Every kernel is in the list.
for name in $(sed -n 's/^void \([a-z0-9_]*_on\)(std::same_as<Cpu> auto&.*/\1/p' "$source"/include/dhp/cpu/*.hpp); do
  tr -s '\n ' ' ' <"$source/include/dhp/cpu_instances.ipp" | grep -qE "decltype\(detail::($name<(detail::[A-Za-z0-9<>]+, )?Cpu>)\) detail::\1;" ||
    { echo "$name is not in dhp/cpu_instances.ipp"; exit 1; }
done
