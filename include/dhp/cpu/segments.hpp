// Computes squared norms of segments on the Cpu, in parallel over tiles.
#pragma once

#include <dhp/cpu/reduce.hpp>
#include <dhp/ops/segments.hpp>

namespace dhp::detail::cpu {

void for_tiles(Cpu& dev, const SegmentTable<Cpu>& table, auto body) {
  dev.for_tiles(table.tile_count(), [&](std::int64_t at) { body(table.tiles()[at]); });
}

}  // namespace dhp::detail::cpu

namespace dhp::detail {

void tile_squares_on(std::same_as<Cpu> auto& dev, const SegmentTable<Cpu>& table, ConstView<Cpu> x,
                     bool of_weights, View<Cpu> sums) {
  visit_accumulator(table.accumulation(), [&]<class A>(TypeTag<A>) {
    const TileSource<A> source{data_or_null<A>(x), of_weights};
    cpu::for_tiles(dev, table, [&](const SegmentTile& tile) {
      sums.data<double>()[tile.sum] = cpu::squares_of(source(tile), tile.last - tile.first);
    });
  });
}
void sum_tiles_on(std::same_as<Cpu> auto&, const SegmentTable<Cpu>& table, ConstView<Cpu> sums,
                  View<Cpu> squares, std::int64_t stride) {
  for (std::int64_t at = 0; at < table.summed_parameters(); ++at) {
    const auto& of = table.sums()[at];
    double total = 0;
    for (auto tile = of.first; tile < of.last; ++tile) total += sums.data<double>()[tile];
    squares.data<double>()[of.group * stride + of.parameter] = total;
  }
}

}  // namespace dhp::detail
