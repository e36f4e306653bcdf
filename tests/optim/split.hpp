// Optimizers that go by norms of whole weights: a weight in parts, on as many ranks, against the unsplit one.
#pragma once

#include <dhp/comm/mesh.hpp>
#include <dhp/nn/model_builder.hpp>
#include <dhp/optim/optimizer.hpp>
#include <tests/support/device_ranks.hpp>

namespace tests {

/// make(dev, store, norms) is the optimizer.
template <class Dev, class Make>
void check_split(Make make) {
  constexpr std::int64_t rows = 5, columns = 3;
  // The rows of this rank after two steps.
  const auto train = [&](Dev& dev, Comm<Dev> world, int ranks) {
    Mesh<Dev> mesh(std::move(world), {.tensor = ranks});
    ModelBuilder<Dev> build(Comm<Dev>{});
    const auto weight =
        build.parameter(split({.name = "weight", .shape = {rows, columns}, .init = normal(1)}, 0,
                              ranks, mesh.tensor().rank()));
    // Replicas hold the same, and only one of them counts.
    const auto whole = build.parameter({.name = "whole", .shape = {4}, .init = normal(1)});
    ParameterStore<Dev> store(dev, {weight, whole}, {.compute = DType::f64});
    Norms<Dev> norms(mesh.tensor(), mesh.pipeline(), 2);
    auto optimizer = make(dev, store, norms);
    for (std::uint32_t step = 1; step <= 2; ++step) {
      const auto gradient = random_tensor(dev, DType::f64, {rows, columns}, step);
      const auto mine = ranks > 1 ? weight->spec.part : Range{0, rows};
      const auto put = [&](ConstView<Dev> from, View<Dev> to) {
        dev.copy(to.bytes(), from.bytes(), from.size_bytes());
      };
      put(gradient.view().slice(mine.first, mine.last),
          store.gradients(weight->range).as(weight->value.shape()));
      put(random_tensor(dev, DType::f64, {4}, 50 + step), store.gradients(whole->range));
      const auto now = make_step_state(dev, {.learning_rate = 0.1, .updates = step});
      optimizer.prepare(dev, norms.gradient_squares(dev, store), now);
      optimizer.apply(dev, now);
    }
    auto found = widened(dev, weight->value);
    const auto rest = widened(dev, whole->value);
    found.insert(found.end(), rest.begin(), rest.end());
    return found;
  };
  std::vector<double> serial;
  on_ranks_of<Dev>(1, [&](Dev& dev, Comm<Dev> world) { serial = train(dev, std::move(world), 1); });
  on_ranks_of<Dev>(2, [&](Dev& dev, Comm<Dev> world) {
    const int rank = world.rank();
    const auto part = part_of(rows, 2, rank);
    std::vector<double> expected(serial.begin() + part.first * columns,
                                 serial.begin() + part.last * columns);
    expected.insert(expected.end(), serial.end() - 4, serial.end());
    const auto found = train(dev, std::move(world), 2);
    REQUIRE(found.size() == expected.size());
    CHECK(distance(found, expected) < 1e-14);
  });
}

}  // namespace tests
