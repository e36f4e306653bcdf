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

TEST_CASE("optimizer: padding between parameters stays zero") { OptimizerCases<Cpu>::padding(); }

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

TEST_CASE("optimizer: masters add up steps too small for 16 bits") {
  OptimizerCases<Cpu>::masters();
}
TEST_CASE("optimizer: the next step starts from weights set from outside") {
  OptimizerCases<Cpu>::values_from_outside();
}
TEST_CASE("optimizer: a skipped step changes neither weights nor state") {
  OptimizerCases<Cpu>::step_that_does_not_go();
}
TEST_CASE("optimizer: prepare() writes nothing, apply() leaves the gradients") {
  OptimizerCases<Cpu>::prepare_writes_nothing();
}
TEST_CASE("optimizer: rates of prepare() are for one apply()") {
  OptimizerCases<Cpu>::apply_needs_prepare();
}
