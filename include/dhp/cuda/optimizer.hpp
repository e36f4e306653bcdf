// Fused optimizer updates on the GPU, in one launch for all segments. If the step is not applied, each thread returns
// immediately; otherwise it first derives its constants from the step's state.
#pragma once

#include <dhp/cuda/segments.hpp>
#include <dhp/cuda/step.hpp>
#include <dhp/ops/optimizer.hpp>

namespace dhp::detail::cuda {

/// Flat tensors of an update, in the accumulation type; null if the optimizer lacks one.
template <class A>
struct UpdateTensors {
  const A* gradient;
  A *m, *v, *masters;
};

/// Updates all weights. T: the type of values in narrow tiles. Rule: prepare(state) returns per-thread constants;
/// step(constants, state, tile) returns a function (weight, gradient, moments...) -> new weight. Rule::moments is the
/// number of moments: 0, 1 (m) or 2 (m and v). It is a constant, because nvcc would otherwise not store in packs.
template <class T, class Rule>
struct UpdateWeights {
  using A = Accumulator<T>;
  Rule rule;
  const StepState* state;
  Pieces pieces;
  UpdateTensors<A> in;

  constexpr void operator()(auto& block) const {
    if (!state->applies()) return;
    const auto prepared = rule.prepare(*state);
    for (auto at = block.index(); at < pieces.count(); at += block.blocks()) {
      const auto piece = pieces.at(at);
      const auto step = rule.step(prepared, *state, piece.tile);
      if constexpr (is_16_bit<T>)
        if (piece.tile.narrow) {
          update<T>(block, piece, step);
          continue;
        }
      update<A>(block, piece, step);
    }
  }

 private:
  static constexpr int width = pack_size<A>;

  template <class V, class B, class Step>
  constexpr void update(const B& block, const Piece& piece, const Step& step) const {
    V* const values = piece.template values<V>();
    const auto packs = piece.count / width;
    for (std::int64_t pack = block.thread(); pack < packs; pack += block.threads())
      some<width>(values + pack * width, piece.first + pack * width, step);
    // Updates the remainder, less than a pack.
    for (auto at = packs * width + block.thread(); at < piece.count; at += block.threads())
      some<1>(values + at, piece.first + at, step);
  }
  template <int n, class V, class Step>
  constexpr void some(V* value, std::int64_t first, const Step& step) const {
    constexpr bool has_master = is_16_bit<V>;
    const auto g = load<n>(in.gradient + first);
    Pack<A, n> weight;
    if constexpr (has_master) weight = load<n>(in.masters + first);
    else weight = load<n>(value);
    Pack<A, n> m, v;
    if constexpr (Rule::moments > 0) m = load<n>(in.m + first);
    if constexpr (Rule::moments > 1) v = load<n>(in.v + first);
    Pack<V, n> rounded;
    for (int i = 0; i < n; ++i) {
      if constexpr (Rule::moments == 0) weight.at[i] = step(weight.at[i], g.at[i]);
      else if constexpr (Rule::moments == 1) weight.at[i] = step(weight.at[i], g.at[i], m.at[i]);
      else weight.at[i] = step(weight.at[i], g.at[i], m.at[i], v.at[i]);
      rounded.at[i] = static_cast<V>(weight.at[i]);
    }
    if constexpr (Rule::moments > 0) store<n>(in.m + first, m);
    if constexpr (Rule::moments > 1) store<n>(in.v + first, v);
    if constexpr (has_master) store<n>(in.masters + first, weight);
    store<n>(value, rounded);
  }
};

template <class A, bool has_momentum>
struct SgdRule {
  static constexpr int moments = has_momentum ? 1 : 0;
  SgdUpdate update;
  const double* rates;
  constexpr int prepare(const StepState&) const { return 0; }
  constexpr SgdStep<A> step(int, const StepState& state, const SegmentTile& tile) const {
    return {update, state, tile_rate(tile, state, rates), tile_decay(tile, update.weight_decay)};
  }
};

template <class A>
struct AdamRule {
  static constexpr int moments = 2;
  AdamUpdate update;
  constexpr AdamStep<A> prepare(const StepState& state) const { return {update, state}; }
};

template <class A>
struct AdamwRule : AdamRule<A> {
  constexpr AdamwStep<A> step(const AdamStep<A>& adam, const StepState& state,
                              const SegmentTile& tile) const {
    return {adam, state.learning_rate, tile_decay(tile, this->update.weight_decay)};
  }
};

template <class A>
struct LambRule : AdamRule<A> {
  const double* rates;
  constexpr LambStep<A> step(const AdamStep<A>& adam, const StepState& state,
                             const SegmentTile& tile) const {
    return {adam, tile_rate(tile, state, rates), tile_decay(tile, this->update.weight_decay)};
  }
};

/// For this rule, UpdateTensors::gradient points to sums of statistics.
template <class A>
struct MovingAverageRule {
  static constexpr int moments = 0;
  MovingAverageStep<A> moves;
  constexpr int prepare(const StepState&) const { return 0; }
  constexpr auto step(int, const StepState&, const SegmentTile&) const { return moves; }
};

/// Sums the squares of weights and of LAMB's directions for each tile. Reads each tensor only once.
template <class A>
struct LambSquares {
  AdamUpdate update;
  const StepState* state;
  const SegmentTile* tiles;
  std::int64_t count;
  const A *gradient, *m, *v;
  TileSource<A> weights;
  double *weight_sums, *direction_sums;

  constexpr void operator()(auto& block) const {
    if (!state->applies()) return;
    const AdamStep<A> adam(update, *state);
    for (auto at = block.index(); at < count; at += block.blocks()) {
      const auto& tile = tiles[at];
      const LambDirection<A> direction(adam, tile_decay(tile, update.weight_decay));
      const A* const weight = weights(tile);
      const auto elements = tile.last - tile.first;
      const auto packs = elements / width;
      Totals totals;
      for (std::int64_t pack = block.thread(); pack < packs; pack += block.threads())
        add<width>(weight + pack * width, tile.first + pack * width, direction, totals);
      for (auto i = packs * width + block.thread(); i < elements; i += block.threads())
        add<1>(weight + i, tile.first + i, direction, totals);
      auto* const scratch = block.template shared<double>();
      totals.weights = block_reduce(block, totals.weights, scratch);
      totals.directions = block_reduce(block, totals.directions, scratch);
      if (block.thread() > 0) continue;
      weight_sums[tile.sum] = totals.weights;
      direction_sums[tile.sum] = totals.directions;
    }
  }

 private:
  static constexpr int width = pack_size<A>;
  struct Totals {
    double weights = 0, directions = 0;
  };
  template <int n>
  constexpr void add(const A* weight, std::int64_t first, const LambDirection<A>& direction,
                     Totals& totals) const {
    const auto w = load<n>(weight), g = load<n>(gradient + first);
    auto mean = load<n>(m + first), square = load<n>(v + first);
    for (int i = 0; i < n; ++i) {
      totals.weights += Square()(static_cast<double>(w.at[i]));
      totals.directions +=
          Square()(static_cast<double>(direction(w.at[i], g.at[i], mean.at[i], square.at[i])));
    }
  }
};

struct LarsRate {
  LarsRule rule;
  const StepState* state;
  constexpr double operator()(double weight, double gradient) const {
    return lars_rate(rule, *state, weight, gradient);
  }
};
struct LambRate {
  const StepState* state;
  constexpr double operator()(double weight, double direction) const {
    return lamb_rate(*state, weight, direction);
  }
};

template <class T, class Rule, KernelDevice Dev>
void update_weights(Dev& dev, const Rule& rule, const SegmentTable<Dev>& table,
                    ConstView<Dev> state, const UpdateTensors<Accumulator<T>>& in) {
  const auto pieces = pieces_of(table);
  launch(dev, pieces.grid(dev), UpdateWeights<T, Rule>{rule, step_state<Dev>(state), pieces, in});
}

}  // namespace dhp::detail::cuda

namespace dhp::detail {

template <KernelDevice Dev>
void sgd_update_on(Dev& dev, const SgdUpdate& update, const SegmentTable<Dev>& table,
                   ConstView<Dev> state, ConstView<Dev> rates, ConstView<Dev> gradient,
                   View<Dev> momentum, View<Dev> masters) {
  visit_floating(table.compute(), [&]<class T, class A>(Tags<T, A>) {
    const auto with = [&]<bool has_momentum>(std::bool_constant<has_momentum>) {
      const cuda::SgdRule<A, has_momentum> rule{update, data_or_null<double>(rates)};
      cuda::update_weights<T>(
          dev, rule, table, state,
          {gradient.data(), data_or_null<A>(momentum), nullptr, data_or_null<A>(masters)});
    };
    momentum.empty() ? with(std::false_type()) : with(std::true_type());
  });
}
template <KernelDevice Dev>
void adamw_update_on(Dev& dev, const AdamUpdate& update, const SegmentTable<Dev>& table,
                     ConstView<Dev> state, ConstView<Dev> gradient, View<Dev> m, View<Dev> v,
                     View<Dev> masters) {
  visit_floating(table.compute(), [&]<class T, class A>(Tags<T, A>) {
    cuda::update_weights<T>(dev, cuda::AdamwRule<A>{{update}}, table, state,
                            {gradient.data(), m.data(), v.data(), data_or_null<A>(masters)});
  });
}
template <KernelDevice Dev>
void lamb_squares_on(Dev& dev, const AdamUpdate& update, const SegmentTable<Dev>& table,
                     ConstView<Dev> state, ConstView<Dev> gradient, ConstView<Dev> m,
                     ConstView<Dev> v, ConstView<Dev> masters, View<Dev> weights,
                     View<Dev> directions) {
  visit_accumulator(table.accumulation(), [&]<class A>(TypeTag<A>) {
    launch(dev, cuda::grid_of_tiles(dev, table),
           cuda::LambSquares<A>{update,
                                cuda::step_state<Dev>(state),
                                table.tiles(),
                                table.tile_count(),
                                gradient.data(),
                                m.data(),
                                v.data(),
                                {data_or_null<A>(masters), true},
                                weights.data(),
                                directions.data()});
  });
}
template <KernelDevice Dev>
void lamb_update_on(Dev& dev, const AdamUpdate& update, const SegmentTable<Dev>& table,
                    ConstView<Dev> state, ConstView<Dev> rates, ConstView<Dev> gradient,
                    View<Dev> m, View<Dev> v, View<Dev> masters) {
  visit_floating(table.compute(), [&]<class T, class A>(Tags<T, A>) {
    cuda::update_weights<T>(dev, cuda::LambRule<A>{{update}, rates.data()}, table, state,
                            {gradient.data(), m.data(), v.data(), data_or_null<A>(masters)});
  });
}
template <KernelDevice Dev>
void update_moving_averages_on(Dev& dev, double momentum, std::int64_t parts,
                               const SegmentTable<Dev>& table, ConstView<Dev> state,
                               ConstView<Dev> sums) {
  visit_accumulator(table.accumulation(), [&]<class A>(TypeTag<A>) {
    cuda::update_weights<A>(dev, cuda::MovingAverageRule<A>{{momentum, parts}}, table, state,
                            {sums.data(), nullptr, nullptr, nullptr});
  });
}
template <KernelDevice Dev>
void lars_rates_on(Dev& dev, const LarsRule& rule, ConstView<Dev> state, ConstView<Dev> weights,
                   ConstView<Dev> gradients, View<Dev> rates) {
  cuda::map(dev, rates.count(), cuda::LarsRate{rule, cuda::step_state<Dev>(state)},
            rates.template data<double>(), weights.template data<double>(),
            gradients.template data<double>());
}
template <KernelDevice Dev>
void lamb_rates_on(Dev& dev, ConstView<Dev> state, ConstView<Dev> weights,
                   ConstView<Dev> directions, View<Dev> rates) {
  cuda::map(dev, rates.count(), cuda::LambRate{cuda::step_state<Dev>(state)},
            rates.template data<double>(), weights.template data<double>(),
            directions.template data<double>());
}

}  // namespace dhp::detail
