#pragma once

#include <dhp/cpu/step.hpp>
#include <dhp/ops/optimizer.hpp>

namespace dhp::cpu {

template <class Body>
void for_tiles(Cpu& dev, const SegmentTable<Cpu>& table, Body body) {
  dev.for_ranges(table.tile_count(), 1,
                 [&](std::int64_t at, std::int64_t) { body(table.tiles()[at]); });
}

/// T: the type of the values; the accumulation type for keep_fp32 parameters.
template <class T>
struct OptimizerKernel {
  using A = Accumulator<T>;
  using Table = SegmentTable<Cpu>;
  static void sgd(Cpu& dev, const Table& table, const SgdUpdate& update, const StepState& state,
                  const double* rates, const A* gradient, A* momentum, A* masters);
  static void adamw(Cpu& dev, const Table& table, const AdamUpdate& update, const StepState& state,
                    const A* gradient, A* m, A* v, A* masters);
  static void along(Cpu& dev, const Table& table, const StepState& state, const double* rates,
                    const A* direction, A* masters);

 private:
  /// step_of(tile) returns step(at, weight), which computes the new weight of flat element `at`.
  template <class StepOf>
  static void update_all(Cpu& dev, const Table& table, A* masters, StepOf step_of) {
    for_tiles(dev, table, [=](const SegmentTile& tile) {
      const auto first = tile.first;
      const auto count = tile.last - first;
      const auto step = step_of(tile);
      A* const weights = tile.narrow ? masters + first : reinterpret_cast<A*>(tile.value);
      for (std::int64_t at = 0; at < count; ++at) weights[at] = step(first + at, weights[at]);
      if constexpr (is_16_bit<T>) {
        if (!tile.narrow) return;
        T* const values = reinterpret_cast<T*>(tile.value);
        for (std::int64_t at = 0; at < count; ++at)
          values[at] = static_cast<T>(weights[at]);  // from cache
      }
    });
  }
};

template <class T>
void OptimizerKernel<T>::sgd(Cpu& dev, const Table& table, const SgdUpdate& update,
                             const StepState& state, const double* rates, const A* gradient,
                             A* momentum, A* masters) {
  const auto step_of = [=, &state](const SegmentTile& tile) {
    return SgdStep<A>(update, state, tile_rate(tile, state, rates),
                      tile_decay(tile, update.weight_decay));
  };
  if (momentum == nullptr)
    update_all(dev, table, masters, [=](const SegmentTile& tile) {
      return [=, step = step_of(tile)](std::int64_t at, A weight) {
        return step.without_momentum(weight, gradient[at]);
      };
    });
  else
    update_all(dev, table, masters, [=](const SegmentTile& tile) {
      return [=, step = step_of(tile)](std::int64_t at, A weight) {
        return step(weight, gradient[at], momentum[at]);
      };
    });
}

template <class T>
void OptimizerKernel<T>::adamw(Cpu& dev, const Table& table, const AdamUpdate& update,
                               const StepState& state, const A* gradient, A* m, A* v, A* masters) {
  const AdamStep<A> adam(update, state);
  const auto rate = state.learning_rate;
  update_all(dev, table, masters, [=](const SegmentTile& tile) {
    return [=, step = AdamwStep<A>(adam, rate, tile_decay(tile, update.weight_decay))](
               std::int64_t at, A weight) { return step(weight, gradient[at], m[at], v[at]); };
  });
}

template <class T>
void OptimizerKernel<T>::along(Cpu& dev, const Table& table, const StepState& state,
                               const double* rates, const A* direction, A* masters) {
  update_all(dev, table, masters, [=, &state](const SegmentTile& tile) {
    return [=, rate = static_cast<A>(tile_rate(tile, state, rates))](std::int64_t at, A weight) {
      return weight - rate * direction[at];
    };
  });
}

template <class A>
void lamb_direction(Cpu& dev, const SegmentTable<Cpu>& table, const AdamUpdate& update,
                    const StepState& state, const A* gradient, A* m, A* v, const A* masters,
                    A* direction) {
  const AdamStep<A> adam(update, state);
  const TileSource<A> weights{masters, true};
  for_tiles(dev, table, [=](const SegmentTile& tile) {
    const A decay = static_cast<A>(tile_decay(tile, update.weight_decay));
    const A* const weight = weights(tile);
    const auto first = tile.first;
    const auto count = tile.last - first;
    for (std::int64_t at = 0; at < count; ++at)
      direction[first + at] =
          adam(gradient[first + at], m[first + at], v[first + at]) + decay * weight[at];
  });
}

}  // namespace dhp::cpu

namespace dhp {

inline void sgd_update_on(Cpu& dev, const SgdUpdate& update, const SegmentTable<Cpu>& table,
                          ConstView<Cpu> state, ConstView<Cpu> rates, ConstView<Cpu> gradient,
                          View<Cpu> momentum, View<Cpu> masters) {
  const auto& now = cpu::step_state(state);
  if (!now.applies()) return;
  visit_floating(table.compute(), [&]<class T>(Tag<T>) {
    using A = Accumulator<T>;
    cpu::OptimizerKernel<T>::sgd(dev, table, update, now, ops::data_or_null<double>(rates),
                                 gradient.data<A>(), ops::data_or_null<A>(momentum),
                                 ops::data_or_null<A>(masters));
  });
}
inline void adamw_update_on(Cpu& dev, const AdamUpdate& update, const SegmentTable<Cpu>& table,
                            ConstView<Cpu> state, ConstView<Cpu> gradient, View<Cpu> m, View<Cpu> v,
                            View<Cpu> masters) {
  const auto& now = cpu::step_state(state);
  if (!now.applies()) return;
  visit_floating(table.compute(), [&]<class T>(Tag<T>) {
    using A = Accumulator<T>;
    cpu::OptimizerKernel<T>::adamw(dev, table, update, now, gradient.data<A>(), m.data<A>(),
                                   v.data<A>(), ops::data_or_null<A>(masters));
  });
}
inline void lamb_direction_on(Cpu& dev, const AdamUpdate& update, const SegmentTable<Cpu>& table,
                              ConstView<Cpu> state, ConstView<Cpu> gradient, View<Cpu> m,
                              View<Cpu> v, ConstView<Cpu> masters, View<Cpu> direction) {
  const auto& now = cpu::step_state(state);
  if (!now.applies()) return;
  visit_accumulator(table.accumulation(), [&]<class A>(Tag<A>) {
    cpu::lamb_direction<A>(dev, table, update, now, gradient.data<A>(), m.data<A>(), v.data<A>(),
                           ops::data_or_null<A>(masters), direction.data<A>());
  });
}
inline void apply_direction_on(Cpu& dev, const SegmentTable<Cpu>& table, ConstView<Cpu> state,
                               ConstView<Cpu> rates, ConstView<Cpu> direction, View<Cpu> masters) {
  const auto& now = cpu::step_state(state);
  if (!now.applies()) return;
  visit_floating(table.compute(), [&]<class T>(Tag<T>) {
    using A = Accumulator<T>;
    cpu::OptimizerKernel<T>::along(dev, table, now, rates.data<double>(), direction.data<A>(),
                                   ops::data_or_null<A>(masters));
  });
}
inline void lars_rates_on(Cpu&, const LarsRule& rule, ConstView<Cpu> state, ConstView<Cpu> weights,
                          ConstView<Cpu> gradients, View<Cpu> rates) {
  for (std::int64_t at = 0; at < rates.count(); ++at)
    rates.data<double>()[at] = lars_rate(rule, cpu::step_state(state), weights.data<double>()[at],
                                         gradients.data<double>()[at]);
}
inline void lamb_rates_on(Cpu&, ConstView<Cpu> state, ConstView<Cpu> weights,
                          ConstView<Cpu> directions, View<Cpu> rates) {
  for (std::int64_t at = 0; at < rates.count(); ++at)
    rates.data<double>()[at] = lamb_rate(cpu::step_state(state), weights.data<double>()[at],
                                         directions.data<double>()[at]);
}

}  // namespace dhp
