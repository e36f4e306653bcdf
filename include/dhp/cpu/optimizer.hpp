#pragma once

#include <dhp/cpu/segments.hpp>
#include <dhp/cpu/step.hpp>
#include <dhp/ops/optimizer.hpp>

namespace dhp::detail::cpu {

/// Calls body(Tag of the accumulation type, step state) if the step is applied.
void if_applied(const SegmentTable<Cpu>& table, ConstView<Cpu> state, auto body) {
  const auto& now = step_state(state);
  if (now.applies())
    visit_accumulator(table.accumulation(), [&]<class A>(TypeTag<A> tag) { body(tag, now); });
}

/// Updates all weights. step_of(tile) returns a function step(weight, element of each of `flat`...) that computes the
/// new weight in A. A is the type of the master weights or, if there are none, of the weights.
template <class A>
void update_weights(Cpu& dev, const SegmentTable<Cpu>& table, const View<Cpu>& masters,
                    auto step_of, auto*... flat) {
  for_tiles(dev, table, [&, all = data_or_null<A>(masters)](const SegmentTile& tile) {
    const auto step = step_of(tile);
    A* const weights = tile.narrow ? all + tile.first : reinterpret_cast<A*>(tile.value);
    const auto count = tile.last - tile.first, block = tile.narrow ? row_block : count;
    const View<Cpu> narrow{reinterpret_cast<std::byte*>(tile.value), table.compute(), {count}};
    for (std::int64_t from = 0, to; from < count; from = to) {
      to = std::min(from + block, count);
      for (auto at = from; at < to; ++at) weights[at] = step(weights[at], flat[tile.first + at]...);
      // Rounds weights that are still in the cache.
      if (tile.narrow) write<A>(narrow, from, to - from, weights + from);
    }
  });
}

}  // namespace dhp::detail::cpu

namespace dhp::detail {

template <class Rule>
void update_weights_on(std::same_as<Cpu> auto& dev, const Rule& rule,
                       const SegmentTable<Cpu>& table, ConstView<Cpu> state,
                       ConstView<Cpu> gradient, View<Cpu> m, View<Cpu> v, View<Cpu> masters) {
  cpu::if_applied(table, state, [&]<class A>(TypeTag<A>, const StepState& now) {
    const auto step_of = [&, prepared = rule.template prepare<A>(now)](const SegmentTile& tile) {
      return rule.step(prepared, now, tile);
    };
    const auto run = [&](auto*... moments) {
      cpu::update_weights<A>(dev, table, masters, step_of, gradient.data<A>(), moments...);
    };
    if constexpr (Rule::moments == 0) run();
    else if constexpr (Rule::moments == 1) run(m.data<A>());
    else run(m.data<A>(), v.data<A>());
  });
}

void lamb_squares_on(std::same_as<Cpu> auto& dev, const AdamUpdate& update,
                     const SegmentTable<Cpu>& table, ConstView<Cpu> state, ConstView<Cpu> gradient,
                     ConstView<Cpu> m, ConstView<Cpu> v, ConstView<Cpu> masters, View<Cpu> weights,
                     View<Cpu> directions) {
  cpu::if_applied(table, state, [&]<class A>(TypeTag<A>, const StepState& now) {
    const AdamStep<A> adam(update, now);
    const TileSource<A> weight_of{data_or_null<A>(masters), true};
    cpu::for_tiles(dev, table, [&](const SegmentTile& tile) {
      const auto count = tile.last - tile.first;
      const A* const w = weight_of(tile);
      weights.data<double>()[tile.sum] = cpu::squares_of(w, count);
      directions.data<double>()[tile.sum] = cpu::lane_sum<double>(
          count, [w, g = gradient.data<A>() + tile.first, means = m.data<A>() + tile.first,
                  squares = v.data<A>() + tile.first,
                  direction = LambDirection<A>(adam, tile_decay(tile, update.weight_decay))](
                     std::int64_t at) {
            A mean = means[at], square = squares[at];
            const double length = static_cast<double>(direction(w[at], g[at], mean, square));
            return length * length;
          });
    });
  });
}
template <class Rule>
void layer_rates_on(std::same_as<Cpu> auto&, const Rule& rule, ConstView<Cpu> state,
                    ConstView<Cpu> weights, ConstView<Cpu> others, View<Cpu> rates) {
  for (std::int64_t at = 0; at < rates.count(); ++at)
    rates.data<double>()[at] =
        rule(cpu::step_state(state), weights.data<double>()[at], others.data<double>()[at]);
}

}  // namespace dhp::detail
