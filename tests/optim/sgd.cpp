// SGD against PyTorch's definition of torch.optim.SGD (dampening 0).
#include <dhp/optim/sgd.hpp>
#include <tests/optim/trained.hpp>

using namespace tests;

TEST_CASE("sgd: three steps are PyTorch's, in every precision; biases and norms do not decay") {
  for (const auto& options : {SgdOptions{},
                              {.weight_decay = 0.1},
                              {.momentum = 0.9},
                              {.momentum = 0.8, .weight_decay = 0.1},
                              {.momentum = 0.8, .nesterov = true, .weight_decay = 0.1}})
    for (const auto compute : all_computes) {
      CAPTURE(options.momentum);
      CAPTURE(options.nesterov);
      CAPTURE(options.weight_decay);
      const bool momentum = options.momentum != 0;
      three_steps(
          compute, momentum ? "momentum_buffer" : "", "",
          [&](Cpu& dev, ParameterStore<Cpu>& store, const Norms<Cpu>&) {
            return Sgd<Cpu>(dev, store, options);
          },
          [&](Reference& p, const std::vector<double>& gradient, const StepState& scalars) {
            for (std::size_t i = 0; i < p.w.size(); ++i) {
              double g = gradient[i];
              if (p.decays) g += options.weight_decay * p.w[i];
              if (momentum) {
                p.m[i] = options.momentum * p.m[i] + g;
                g = options.nesterov ? g + options.momentum * p.m[i] : p.m[i];
              }
              p.w[i] -= scalars.learning_rate * g;
            }
          });
    }
}

TEST_CASE("sgd: without momentum there is no state to save") {
  Cpu dev;
  Build<Cpu> build;
  ParameterStore<Cpu> store(dev, all_kinds(build), {});
  CHECK(Sgd<Cpu>(dev, store, {.weight_decay = 0.1}).state().empty());
}
