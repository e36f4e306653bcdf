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

/// Updates all weights by a rule of ops/optimizer.hpp. T: the type of values in narrow tiles.
template <class T, class Rule>
struct UpdateWeights {
  using A = Accumulator<T>;
  Rule rule;
  const StepState* state;
  Pieces pieces;
  UpdateTensors<A> in;

  constexpr void operator()(auto& block) const {
    if (!state->applies()) return;
    const auto prepared = rule.template prepare<A>(*state);
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

template <class Rule>
struct LayerRate {
  Rule rule;
  const StepState* state;
  constexpr double operator()(double weight, double other) const {
    return rule(*state, weight, other);
  }
};

}  // namespace dhp::detail::cuda

namespace dhp::detail {

template <KernelDevice Dev, class Rule>
void update_weights_on(Dev& dev, const Rule& rule, const SegmentTable<Dev>& table,
                       ConstView<Dev> state, ConstView<Dev> gradient, View<Dev> m, View<Dev> v,
                       View<Dev> masters) {
  const auto pieces = cuda::pieces_of(table);
  visit_floating(table.compute(), [&]<class T, class A>(Tags<T, A>) {
    const cuda::UpdateTensors<A> in{gradient.data(), data_or_null<A>(m), data_or_null<A>(v),
                                    data_or_null<A>(masters)};
    launch(dev, pieces.grid(dev),
           cuda::UpdateWeights<T, Rule>{rule, cuda::step_state<Dev>(state), pieces, in});
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
template <KernelDevice Dev, class Rule>
void layer_rates_on(Dev& dev, const Rule& rule, ConstView<Dev> state, ConstView<Dev> weights,
                    ConstView<Dev> others, View<Dev> rates) {
  cuda::map(dev, rates.count(), cuda::LayerRate<Rule>{rule, cuda::step_state<Dev>(state)},
            rates.template data<double>(), weights.template data<double>(),
            others.template data<double>());
}

}  // namespace dhp::detail
