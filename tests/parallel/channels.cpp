// Between split and whole channels on the Cpu.
#include <dhp/cpu.hpp>
#include <tests/parallel/channels.hpp>

using namespace tests;

TEST_CASE_TEMPLATE("scattered and gathered channels are what they were", T, double, float, bf16) {
  ChannelCases<Cpu>::there_and_back<T>();
}
