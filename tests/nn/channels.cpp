// Gathering and scattering of channels on the Cpu.
#include <dhp/cpu.hpp>
#include <tests/nn/channels.hpp>

TEST_CASE_TEMPLATE("scatter and gather undo each other", T, double, float, bf16) {
  ChannelCases<Cpu>::there_and_back<T>();
}
