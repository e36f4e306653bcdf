// Fused parameters form one matrix, in place or copied, in stores of every kind.
#include <dhp/cpu.hpp>
#include <dhp/nn/fused_parameters.hpp>
#include <tests/support/tensors.hpp>

namespace {

struct Three {
  ParameterList<Cpu> weights, biases;

  Three(ModelBuilder<Cpu>& build, std::int64_t rows, std::int64_t columns) {
    int fused = 2;
    for (const auto* name : {"q", "k", "v"}) {
      const Linear<Cpu> part(
          build, name, {.in = columns, .out = rows, .bias_init = normal(1), .fused = fused--});
      weights.push_back(part.weights()[0]);
      biases.push_back(part.biases()[0]);
    }
  }
  [[nodiscard]] ParameterList<Cpu> list() const {
    auto all = weights;
    all.insert(all.end(), biases.begin(), biases.end());
    return all;
  }
};

bool together(const ParameterList<Cpu>& parts) {
  return parts[1]->value.bytes() == parts[0]->value.bytes() + parts[0]->value.size_bytes() &&
         parts[2]->value.bytes() == parts[1]->value.bytes() + parts[1]->value.size_bytes();
}

}  // namespace

TEST_CASE("fused parameters: joined values are the parts' values in order") {
  for (const std::int64_t rows : {4, 5, 32}) {  // with padding between 4 x 5 and 5 x 5
    Cpu dev;
    ModelBuilder<Cpu> build(Comm<Cpu>{});
    const Three three(build, rows, rows == 4 ? 5 : rows);
    ParameterStore<Cpu> store(dev, three.list(), {.seed = 3});
    std::vector<double> expected;
    for (const auto& part : three.weights)
      for (const double value : widened(clone(dev, ConstView<Cpu>(part->value))))
        expected.push_back(value);
    const dhp::detail::FusedValues<Cpu> joined(dev, three.weights);
    CHECK(joined.view().shape()[0] == 3 * rows);
    CHECK(widened(clone(dev, joined.view())) == expected);
    CHECK((joined.view().bytes() == three.weights[0]->value.bytes()) == (rows == 32));
  }
}

TEST_CASE("fused parameters: contributions reach each gradient, with and without exact sums") {
  for (const std::int64_t rows : {5, 32})
    for (const bool deterministic : {false, true}) {
      INFO("rows ", rows, " deterministic ", deterministic);
      Cpu dev;
      ModelBuilder<Cpu> build(Comm<Cpu>{});
      const Three three(build, rows, rows);
      ParameterStore<Cpu> store(dev, three.list(),
                                {.compute = DType::f64, .deterministic = deterministic});
      const auto dw = random_tensor<double>(dev, {3 * rows, rows}, 1);
      const auto db = random_tensor<double>(dev, {3 * rows}, 2);
      for (int micro_batch = 0; micro_batch < 2; ++micro_batch)
        dhp::detail::accumulate_fused(
            dev, three.weights, three.biases, [&](View<Cpu> to, View<Cpu> to_bias, double beta) {
              for (const auto& [view, from] : {std::pair(to, dw.view()), {to_bias, db.view()}}) {
                CHECK(view.shape() == from.shape());
                if (beta == 0) fill(dev, view, 0);
                else scale(dev, beta, view);
                add(dev, view, from, view);
              }
            });
      store.finalize_gradients(dev, {0, store.size()});
      for (std::size_t which = 0; which < 3; ++which) {
        const auto at = static_cast<std::int64_t>(which) * rows;
        auto expected = clone(dev, dw.view().slice(at, at + rows));
        auto expected_bias = clone(dev, db.view().slice(at, at + rows));
        scale(dev, 2, expected.mut());
        scale(dev, 2, expected_bias.mut());
        CHECK(distance(widened(clone(dev, three.weights[which]->gradient)), widened(expected)) <
              1e-14);
        CHECK(distance(widened(clone(dev, three.biases[which]->gradient)), widened(expected_bias)) <
              1e-14);
      }
    }
}

TEST_CASE("fused parameters: parameters that may be joined are adjacent in every store") {
  // A page has 16384 elements. All three parameters fit into one page, or each consists of whole pages.
  for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{64, 64},
                                      {128, 128},
                                      {256, 128},
                                      {160, 32},
                                      {128, 64}})
    for (const std::int64_t before : {1, 5000, 16000, 20000})
      for (const std::size_t bucket_bytes : {1, 1 << 16, 1 << 30})
        for (const auto stage : {ZeroStage::none, ZeroStage::optimizer, ZeroStage::gradients}) {
          INFO("rows ", rows, " before ", before, " bucket_bytes ", bucket_bytes);
          Cpu dev;
          ModelBuilder<Cpu> build(Comm<Cpu>{});
          const auto first = build.parameter({.name = "first", .shape = {before}});
          const Three three(build, rows, columns);
          auto list = three.list();
          list.insert(list.begin(), first);
          ParameterStore<Cpu> store(
              dev, list, {.sharding = {.stage = stage, .bucket_bytes = bucket_bytes}}, {1, 2});
          if (dhp::detail::segments_are_adjacent(rows * columns, 3)) CHECK(together(three.weights));
          else CHECK((stage == ZeroStage::none) == together(three.weights));
          CHECK(dhp::detail::segments_are_adjacent(rows, 3));
          CHECK(together(three.biases));
        }
}
