// Tied weights: one handle on several stages is one weight.
#include <dhp/comm/launch.hpp>
#include <dhp/cpu.hpp>
#include <dhp/nn/norms.hpp>
#include <dhp/parallel/tied.hpp>
#include <tests/support/tensors.hpp>

#include <doctest/doctest.h>

#include <map>

using namespace dhp;
using namespace tests;

namespace {

// "table" is used by the first and the last stage, "pair" by stages 0 and 1, "alone<stage>" by one.
struct Stages {
  Stages(Cpu& dev, Comm<Cpu>& pipeline, StoreOptions options = {.compute = DType::f64}) {
    Build<Cpu> build;
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
    tied = TiedParameters<Cpu>(pipeline, by_stage);
    store = ParameterStore<Cpu>(dev, by_stage[static_cast<std::size_t>(pipeline.rank())], options);
    parameters = 2 + pipeline.size();
  }
  std::vector<ParameterList<Cpu>> by_stage;
  TiedParameters<Cpu> tied;
  ParameterStore<Cpu> store;
  int parameters = 0;
};

void add_to_gradient(Cpu& dev, ParameterState<Cpu>& parameter, double value) {
  parameter.accumulate(dev, [&](View<Cpu> gradient, double beta) {
    double* values = gradient.data<double>();
    for (std::int64_t i = 0; i < gradient.count(); ++i) values[i] = beta * values[i] + value;
  });
}

}  // namespace

TEST_CASE("tied weights: gradients are summed over the stages that use them, once ready each") {
  for (const bool order_free : {false, true})
    for (const int stages : {1, 2, 3, 4})
      run_ranks(
          stages,
          [&](Comm<Cpu> world) {
            Cpu dev;
            Stages made(dev, world, {.compute = DType::f64, .order_free = order_free});
            const int stage = world.rank();
            for (int step = 0; step < 2; ++step) {
              made.store.zero_gradients(dev);
              for (const auto& parameter : made.store.parameters())
                add_to_gradient(dev, *parameter, stage + 1);
              std::map<std::string, int> times;
              auto ready = [&](Range range) {
                for (const auto& parameter : made.store.parameters())
                  if (parameter->range == range) ++times[parameter->spec.name];
              };
              made.tied.reduce(dev, made.store, ready);
              made.store.settle(dev, {0, made.store.size()});
              for (const auto& parameter : made.store.parameters()) {
                const auto& name = parameter->spec.name;
                const bool is_tied = made.tied.contains(*parameter);
                check(is_tied == (stages > 1 && (name == "table" || name == "pair")), name);
                check(times[name] == (is_tied ? 1 : 0), "ready: ", name);
                const double expected = !is_tied ? stage + 1 : name == "pair" ? 1 + 2 : 1 + stages;
                check(parameter->gradient.data<double>()[4] == expected, "gradient of ", name);
              }
            }
          },
          {.timeout_s = 60});
}

TEST_CASE("tied weights: the first stage owns them, all start alike, norms count them once") {
  for (const int stages : {1, 2, 3}) {
    std::vector<std::vector<double>> tables(static_cast<std::size_t>(stages));
    std::vector<double> norms(static_cast<std::size_t>(stages));
    run_ranks(stages,
              [&](Comm<Cpu> world) {
                Cpu dev;
                Stages made(dev, world);
                const auto stage = static_cast<std::size_t>(world.rank());
                for (const auto& parameter : made.store.parameters()) {
                  const auto& name = parameter->spec.name;
                  const bool elsewhere = (name == "table" || name == "pair") && stage > 0;
                  check(parameter->owned == !elsewhere, "owned: ", name);
                  fill(dev, parameter->gradient, 1);
                  const double* values = parameter->value.data<double>();
                  if (name == "table") tables[stage].assign(values, values + 5);
                }
                Norms<Cpu> service({}, world, made.parameters);
                for (const double square : widened(service.gradient_squares(dev, made.store)))
                  norms[stage] += square;
              },
              {.timeout_s = 60});
    CHECK(tables.front().size() == 5);
    CHECK(tables.front() == tables.back());
    CHECK(tables.front()[0] != 0);
    const double elements = 5 * (stages + 1 + (stages > 1 ? 1 : 0));
    for (const double norm : norms) CHECK(norm == elements);
  }
}
