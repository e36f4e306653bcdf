// Squared norms of segments on the Cpu, parallel over tiles.
#pragma once

#include <dhp/cpu/reduce.hpp>
#include <dhp/ops/segments.hpp>

namespace dhp {

void segment_squares_on(std::same_as<Cpu> auto& dev, const SegmentTable<Cpu>& table,
                        ConstView<Cpu> x, bool of_weights, View<Cpu> squares) {
  visit_accumulator(table.accumulation(), [&]<class A>(Tag<A>) {
    const TileSource<A> source{ops::data_or_null<A>(x), of_weights};
    std::vector<double> parts(static_cast<std::size_t>(table.tile_count()));
    dev.for_ranges(table.tile_count(), 1, [&](std::int64_t at, std::int64_t) {
      const auto& tile = table.tiles()[at];
      parts[static_cast<std::size_t>(at)] = cpu::squares_of(source(tile), tile.last - tile.first);
    });
    for (std::int64_t at = 0; at < table.segment_count(); ++at) {
      const auto& segment = table.segments()[at];
      double total = 0;
      for (auto tile = segment.first; tile < segment.last; ++tile)
        total += parts[static_cast<std::size_t>(tile)];
      squares.data<double>()[segment.parameter] = total;
    }
  });
}

}  // namespace dhp
