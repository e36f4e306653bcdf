// Tables of segments: their tiles, and squared norms with the bits of each segment alone.
#include <dhp/cpu/reduce.hpp>
#include <dhp/cpu/segments.hpp>
#include <tests/support/weights.hpp>

namespace {

std::vector<double> squares_of(Cpu& dev, ConstView<Cpu> x) {
  Tensor<Cpu> out(dev, DType::f64, {1});
  sum_of_squares(dev, x, out.mut());
  return widened(out);
}

}  // namespace

TEST_CASE_TEMPLATE("segments: tiles cover each segment once, in order", T, double, bf16) {
  Cpu dev;
  const Weights<Cpu, T> w(dev, kinds_around_a_tile());
  const auto& table = w.table;
  CHECK(table.summed_parameters() == static_cast<std::int64_t>(w.kinds.size()));
  CHECK(table.parameters() == table.summed_parameters());
  CHECK(table.size() == w.firsts[w.kinds.size() - 1] + w.kinds.back().count);
  CHECK(table.has_narrow() == is_16_bit<T>);
  CHECK(table.accumulation() == dtype_of<Accumulator<T>>());
  std::int64_t tiles = 0;
  for (std::size_t k = 0; k < w.kinds.size(); ++k) {
    const auto& sums = table.sums()[k];
    CHECK(sums.parameter == static_cast<std::int64_t>(w.parameter(k)));
    CHECK(sums.first == tiles);
    auto first = w.firsts[k];
    for (; tiles < sums.last; ++tiles) {
      const auto& tile = table.tiles()[tiles];
      CHECK(tile.first == first);
      CHECK(tile.last > first);
      CHECK(tile.last <= first + detail::segment_tile);
      CHECK(tile.parameter == sums.parameter);
      CHECK(tile.sum == tiles);
      CHECK(tile.decays == w.kinds[k].decays);
      CHECK(tile.narrow == w.is_narrow(w.kinds[k]));
      const auto& values = tile.narrow ? w.values : w.exact;
      CHECK(tile.value == values.view().slice(first, w.size()).bytes());
      first = tile.last;
    }
    CHECK(first == w.firsts[k] + w.kinds[k].count);
  }
  CHECK(tiles == table.tile_count());
  // Full tiles are not cut further: 1, 1, 0, 2, 1, 3, and nine small segments.
  CHECK(tiles == 8 + 9 + 1);
}

TEST_CASE_TEMPLATE("segments: squared norms have the bits of each segment alone", T, double, float,
                   bf16, f16) {
  for (const int threads : {1, 2, 3}) {
    Cpu dev({.threads = threads});
    Weights<Cpu, T> w(dev, kinds_around_a_tile());
    const auto parameters = static_cast<std::int64_t>(w.kinds.size());
    auto of_gradients = random_tensor<double>(dev, {parameters + 2}, 9);
    auto of_weights = clone(dev, of_gradients.view());
    const auto before = widened(of_gradients);
    segment_squares(dev, w.table, w.gradient, of_gradients.mut());
    weight_squares(dev, w.table, w.masters, of_weights.mut());
    std::vector<double> gradients(w.kinds.size()), weights(w.kinds.size());
    for (std::size_t k = 0; k < w.kinds.size(); ++k) {
      const Range range{w.firsts[k], w.firsts[k] + w.kinds[k].count};
      const auto& weight = w.is_narrow(w.kinds[k]) ? w.masters : w.exact;
      const auto alone = [&](const Tensor<Cpu>& x) {
        return squares_of(dev, x.view().slice(range.first, range.last))[0];
      };
      gradients[w.parameter(k)] = alone(w.gradient);
      weights[w.parameter(k)] = alone(weight);
    }
    // Entries without a segment in the table do not change.
    for (auto* expected : {&gradients, &weights})
      expected->insert(expected->end(), before.end() - 2, before.end());
    CHECK(widened(of_gradients) == gradients);
    CHECK(widened(of_weights) == weights);
  }
}

TEST_CASE("segments: an empty table has no norms; fp32-only weights need no masters") {
  Cpu dev;
  auto squares = Tensor<Cpu>::zeros(dev, DType::f64, {1});
  segment_squares(dev, detail::SegmentTable<Cpu>(), {}, squares.mut());
  CHECK(widened(squares) == std::vector<double>{0});
  Weights<Cpu, bf16> w(dev, {{2, true, true}});
  CHECK(!w.table.has_narrow());
  weight_squares(dev, w.table, {}, squares.mut());
  CHECK(widened(squares) == squares_of(dev, w.exact.view().slice(0, 2)));
}

TEST_CASE("segments: operands that do not fit are refused") {
  Cpu dev;
  auto values = random_tensor<float>(dev, {96}, 1);
  const auto table_of = [&](DType compute, Range range, View<Cpu> value) {
    return message_of([&] {
      detail::SegmentTable<Cpu>(dev, compute, {{.range = range, .value = value, .parameter = 3}});
    });
  };
  const auto all = values.mut();
  CHECK(table_of(DType::f32, {32, 40}, all.slice(0, 8)) == "no error");
  const std::string rule =
      " elements of [8] values of f32: a segment has as many elements as values, begins at a "
      "multiple of 32 elements, and its values at a multiple of 16 bytes";
  CHECK(table_of(DType::f32, {33, 41}, all.slice(0, 8)) == "parameter 3 has 8" + rule);
  CHECK(table_of(DType::f32, {32, 41}, all.slice(0, 8)) == "parameter 3 has 9" + rule);
  CHECK(table_of(DType::f32, {32, 40}, all.slice(1, 9)) == "parameter 3 has 8" + rule);
  CHECK(table_of(DType::f64, {32, 40}, all.slice(0, 8)) ==
        "the values of parameter 3 are of f32, neither of f64 nor of f64");
  Weights<Cpu, bf16> w(dev, {{4}, {40}});
  auto squares = random_tensor<double>(dev, {1}, 1);
  CHECK(message_of([&] { segment_squares(dev, w.table, w.gradient, squares.mut()); }) ==
        "sum_tiles: squares of 2 parameters are f64, got f64 [1]");
  auto enough = random_tensor<double>(dev, {2}, 1);
  CHECK(
      message_of([&] { weight_squares(dev, w.table, {}, enough.mut()); }) ==
      "tile_weight_squares: the masters [] of f32 does not fit 72 weights that are accumulated in "
      "f32");
}
