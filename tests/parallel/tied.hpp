// Tied weights: one handle on several stages means one weight. On any device.
#pragma once

#include <dhp/nn/model_builder.hpp>
#include <dhp/ops/elementwise.hpp>
#include <dhp/optim/optimizer.hpp>
#include <dhp/parallel/tied.hpp>
#include <tests/support/device_ranks.hpp>
#include <tests/support/gradient_sums.hpp>

namespace tests {

template <class Dev>
class TiedCases {
 public:
  static void sums() {
    for (const bool deterministic : {false, true})
      for (const int stages : {1, 2, 3, 4})
        on_ranks_of<Dev>(stages, [&](Dev& dev, Comm<Dev> world) {
          Stages result(dev, world, {.compute = DType::f64, .deterministic = deterministic});
          const int stage = world.rank();
          for (int step = 0; step < 2; ++step) {
            result.store.zero_gradients(dev);
            for (const auto& parameter : result.store.parameters())
              add_to_gradient(dev, *parameter, stage + 1);
            result.tied.sum(dev, result.store);
            result.store.finalize_gradients(dev, {0, result.store.size()});
            for (const auto& parameter : result.store.parameters()) {
              const auto& name = parameter->spec.name;
              const bool is_tied = parameter->tied;
              check(is_tied == (stages > 1 && (name == "table" || name == "pair")), name);
              const double expected = !is_tied ? stage + 1 : name == "pair" ? 1 + 2 : 1 + stages;
              check(widened(dev, parameter->gradient)[4] == expected, "gradient of ", name);
            }
          }
        });
  }

  static void owners() {
    for (const int stages : {1, 2, 3}) {
      std::vector<std::vector<double>> tables(static_cast<std::size_t>(stages));
      std::vector<double> norms(static_cast<std::size_t>(stages));
      on_ranks_of<Dev>(stages, [&](Dev& dev, Comm<Dev> world) {
        Stages result(dev, world);
        const auto stage = static_cast<std::size_t>(world.rank());
        for (const auto& parameter : result.store.parameters()) {
          const auto& name = parameter->spec.name;
          const bool elsewhere = (name == "table" || name == "pair") && stage > 0;
          check(parameter->owned == !elsewhere, "owned: ", name);
          fill(dev, result.store.gradients(parameter->range), 1);
          if (name == "table") tables[stage] = widened(dev, parameter->value);
        }
        Norms<Dev> service({}, world, result.parameters);
        for (const double square : widened(dev, service.gradient_squares(dev, result.store)))
          norms[stage] += square;
      });
      CHECK(tables.front().size() == 5);
      CHECK(tables.front() == tables.back());
      CHECK(tables.front()[0] != 0);
      const double elements = 5 * (stages + 1 + (stages > 1 ? 1 : 0));
      for (const double norm : norms) CHECK(norm == elements);
    }
  }

 private:
  // The first and the last stage use "table", stages 0 and 1 use "pair", and each stage uses its "alone<stage>".
  struct Stages {
    Stages(Dev& dev, Comm<Dev>& pipeline, ParameterStoreOptions options = {.compute = DType::f64}) {
      ModelBuilder<Dev> build(Comm<Dev>{});
      const auto make = [&](const std::string& name) {
        return build.parameter({.name = name, .shape = {5}, .init = normal(1)});
      };
      const auto table = make("table");
      const auto pair = make("pair");
      for (int stage = 0; stage < pipeline.size(); ++stage)
        by_stage.push_back({make("alone" + std::to_string(stage))});
      by_stage.front().push_back(table);
      if (pipeline.size() > 1) {
        by_stage[0].push_back(pair);
        by_stage[1].push_back(pair);
      }
      by_stage.back().push_back(table);  // with one stage the list has it twice
      tied = dhp::detail::TiedParameters<Dev>(pipeline, by_stage);
      store =
          ParameterStore<Dev>(dev, by_stage[static_cast<std::size_t>(pipeline.rank())], options);
      parameters = 2 + pipeline.size();
    }
    std::vector<ParameterList<Dev>> by_stage;
    dhp::detail::TiedParameters<Dev> tied;
    ParameterStore<Dev> store;
    int parameters = 0;
  };
};

}  // namespace tests
