// Weights for tests of optimizers and norms: segments of all kinds. Padding holds numbers, so that a write there shows.
#pragma once

#include <dhp/ops/optimizer.hpp>
#include <tests/support/tensors.hpp>

namespace tests {

/// The kind of a segment: its number of elements, and how the optimizer treats it.
struct Kind {
  std::int64_t count = 0;
  bool decays = true;
  bool exact = false;  ///< has the accumulation type, even if the others have 16 bits
};

/// The first element of each segment, and the end of the last one.
inline std::vector<std::int64_t> firsts_of(const std::vector<Kind>& kinds) {
  std::vector<std::int64_t> firsts{0};
  for (const auto& kind : kinds)
    firsts.push_back((firsts.back() + kind.count + dhp::detail::segment_alignment) /
                     dhp::detail::segment_alignment * dhp::detail::segment_alignment);
  return firsts;
}

/// Segments of about a tile, of one element and of none, and many short ones. Some decay, some are exact.
inline std::vector<Kind> kinds_around_a_tile() {
  std::vector<Kind> kinds{{1},
                          {dhp::detail::segment_tile, false},
                          {0},
                          {dhp::detail::segment_tile + 1},
                          {dhp::detail::segment_tile - 1, true, true},
                          {2 * dhp::detail::segment_tile + 4099, false, true}};
  for (std::int64_t count = 1; count <= 9; ++count) kinds.push_back({count * 7, count % 2 == 0});
  kinds.push_back({dhp::detail::segment_tile});  // ends with a whole tile
  return kinds;
}

/// Weights and optimizer state, with the same numbers on every device. T is the type of the values that are not exact.
template <class Dev, class T>
struct Weights {
  using A = Accumulator<T>;

  Weights(Dev& dev, const std::vector<Kind>& all) : kinds(all), firsts(firsts_of(all)) {
    gradient = random<A>(dev, 1);
    m = Tensor<Dev>::zeros(dev, dtype_of<A>(), {size()});
    v = Tensor<Dev>::zeros(dev, dtype_of<A>(), {size()});
    masters = random<A>(dev, 2);
    exact = random<A>(dev, 3);
    values = random<T>(dev, 4);
    std::vector<dhp::detail::Segment<Dev>> segments;
    for (std::size_t at = 0; at < kinds.size(); ++at) {
      const Range range{firsts[at], firsts[at] + kinds[at].count};
      auto& holder = is_narrow(kinds[at]) ? values : exact;
      segments.push_back({range, holder.mut().slice(range.first, range.last),
                          static_cast<int>(parameter(at)), kinds[at].decays});
    }
    table = dhp::detail::SegmentTable<Dev>(dev, dtype_of<T>(), segments);
  }

  [[nodiscard]] static bool is_narrow(const Kind& kind) { return is_16_bit<T> && !kind.exact; }
  /// Parameters are numbered backwards, so that a test fails if code mistakes a number for a place in the table.
  [[nodiscard]] std::size_t parameter(std::size_t kind) const { return kinds.size() - 1 - kind; }
  [[nodiscard]] std::int64_t size() const { return firsts.back(); }
  /// All tensors that an update may write.
  [[nodiscard]] std::vector<Tensor<Dev>*> written() { return {&m, &v, &masters, &exact, &values}; }

  std::vector<Kind> kinds;
  std::vector<std::int64_t> firsts;
  Tensor<Dev> gradient, m, v, masters;
  Tensor<Dev> exact;   ///< values of the accumulation type; 16-bit segments leave gaps
  Tensor<Dev> values;  ///< 16-bit values
  dhp::detail::SegmentTable<Dev> table;

  template <class Element>
  [[nodiscard]] Tensor<Dev> random(Dev& dev, std::uint32_t use) const {
    Cpu cpu;
    return Tensor<Dev>::from_host(
        dev, {size()}, random_tensor<Element>(cpu, {size()}, use).template to_host<Element>(cpu));
  }
};

/// squares[parameter] = the sum of squares of its segment of x; of its weights in weight_squares.
template <class Dev>
void segment_squares(Dev& dev, const dhp::detail::SegmentTable<Dev>& table, dhp::InView<Dev> x,
                     dhp::OutView<Dev> squares) {
  auto sums = Tensor<Dev>::zeros(dev, DType::f64, {table.sum_count()});
  dhp::detail::tile_squares(dev, table, x, sums.mut());
  dhp::detail::sum_tiles(dev, table, sums.view(), squares);
}
template <class Dev>
void weight_squares(Dev& dev, const dhp::detail::SegmentTable<Dev>& table, dhp::InView<Dev> masters,
                    dhp::OutView<Dev> squares) {
  auto sums = Tensor<Dev>::zeros(dev, DType::f64, {table.sum_count()});
  dhp::detail::tile_weight_squares(dev, table, masters, sums.mut());
  dhp::detail::sum_tiles(dev, table, sums.view(), squares);
}

/// The squared norms that lamb_squares finds, f64 [parameters]: of the weights, and of the directions.
template <class Dev, class T>
std::pair<std::vector<double>, std::vector<double>> lamb_squares_of(
    Dev& dev, const dhp::detail::AdamUpdate& update, const Weights<Dev, T>& w,
    dhp::InView<Dev> state) {
  auto weights = Tensor<Dev>::zeros(dev, DType::f64, {w.table.sum_count()});
  auto directions = Tensor<Dev>::zeros(dev, DType::f64, {w.table.sum_count()});
  dhp::detail::lamb_squares(dev, update, w.table, state, w.gradient, w.m, w.v, w.masters,
                            weights.mut(), directions.mut());
  const auto squares_of = [&](const Tensor<Dev>& sums) {
    auto squares = Tensor<Dev>::zeros(dev, DType::f64, {w.table.parameters()});
    dhp::detail::sum_tiles(dev, w.table, sums.view(), squares.mut());
    return squares.template to_host<double>(dev);
  };
  return {squares_of(weights), squares_of(directions)};
}

}  // namespace tests
