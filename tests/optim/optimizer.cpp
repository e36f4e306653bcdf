// What all optimizers share, on the Cpu; and names of their state, which are of no device.
#include <dhp/cpu.hpp>
#include <tests/optim/optimizer.hpp>

namespace {

std::vector<std::string> names_of(const std::vector<StateBuffer<Cpu>>& state) {
  std::vector<std::string> names;
  for (const auto& each : state) names.push_back(each.name);
  return names;
}

}  // namespace

TEST_CASE("optimizer: padding, masters, values from outside, skipped steps, prepare()") {
  OptimizerCases<Cpu>::check_all();
}

TEST_CASE("optimizer: state has PyTorch's names; masters are there for 16 bits alone") {
  Cpu dev;
  ModelBuilder<Cpu> one(Comm<Cpu>{}), two(Comm<Cpu>{});
  ParameterStore<Cpu> wide(dev, all_kinds(one), {});
  ParameterStore<Cpu> narrow(dev, all_kinds(two), {.compute = DType::bf16});
  const AdamWOptions options{};
  CHECK(names_of(AdamW<Cpu>(dev, wide, options).state()) ==
        std::vector<std::string>{"exp_avg", "exp_avg_sq"});
  CHECK(names_of(AdamW<Cpu>(dev, narrow, options).state()) ==
        std::vector<std::string>{"master", "exp_avg", "exp_avg_sq"});
  CHECK(names_of(Sgd<Cpu>(dev, narrow, {.momentum = 0.9}).state()) ==
        std::vector<std::string>{"master", "momentum_buffer"});
}
