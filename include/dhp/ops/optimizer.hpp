// Fused optimizer updates of all segments of a table. They read gradient and state once and write weights once. All
// tensors are indexed like the table and have its accumulation type. An update changes the values in place; if the
// values have 16 bits, it changes the master weights and rounds them into the values. Kernels read learning rates,
// gradient scale and the decision from the step state (ops/step.hpp); a step that is not applied writes nothing.
#pragma once

#include <dhp/ops/segments.hpp>
#include <dhp/ops/step.hpp>

#include <cmath>
#include <cstdint>

namespace dhp {

namespace detail {
struct SgdUpdate {
  double momentum = 0;
  double weight_decay = 0;  ///< used only for segments that decay
  bool nesterov = false;
  /// For LARS: the momentum accumulates rate * gradient, because the rate changes from step to step.
  bool rate_in_momentum = false;
};

struct AdamUpdate {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double weight_decay = 0;  ///< used only for segments that decay
};

/// The learning rate of a parameter by LARS, from the squared norms of its weights and of its unscaled gradient.
struct LarsRule {
  double trust = 0.001, weight_decay = 0;

  [[nodiscard]] constexpr double operator()(const StepState& state, double weight_square,
                                            double gradient_square) const {
    const double weight = std::sqrt(weight_square);
    const double denominator =
        std::sqrt(gradient_square) * state.gradient_scale + weight_decay * weight;
    const bool adapts = weight > 0 && denominator > 0;
    return state.learning_rate * (adapts ? trust * weight / denominator : 1);
  }
};

/// The learning rate of a parameter by LAMB, from the squared norms of its weights and of its direction.
struct LambRate {
  [[nodiscard]] constexpr double operator()(const StepState& state, double weight_square,
                                            double direction_square) const {
    const bool adapts = weight_square > 0 && direction_square > 0;
    return state.learning_rate * (adapts ? std::sqrt(weight_square / direction_square) : 1);
  }
};

// The arithmetic of one element or parameter, shared by all devices.
/// Returns the learning rate of a tile. rates is indexed by parameter, or null.
[[nodiscard]] constexpr double tile_rate(const SegmentTile& tile, const StepState& state,
                                         const double* rates) {
  return rates == nullptr || !tile.decays ? state.learning_rate : rates[tile.parameter];
}
[[nodiscard]] constexpr double tile_decay(const SegmentTile& tile, double weight_decay) {
  return tile.decays ? weight_decay : 0;
}

/// Updates Adam's moving averages m and v; returns m^ / (sqrt(v^) + epsilon) of the bias-corrected averages m^ and v^.
template <class A>
struct AdamStep {
  constexpr AdamStep(const AdamUpdate& update, const StepState& state)
      : beta1(static_cast<A>(update.beta1)),
        beta2(static_cast<A>(update.beta2)),
        rest1(static_cast<A>(1 - update.beta1)),
        rest2(static_cast<A>(1 - update.beta2)),
        correction1(static_cast<A>(1 / (1 - power(update.beta1, state.updates)))),
        root_correction2(static_cast<A>(1 / std::sqrt(1 - power(update.beta2, state.updates)))),
        epsilon(static_cast<A>(update.epsilon)),
        scale(static_cast<A>(state.gradient_scale)) {}

  constexpr A operator()(A gradient, A& m, A& v) const {
    const A g = scale * gradient;
    m = beta1 * m + rest1 * g;
    v = beta2 * v + rest2 * g * g;
    return (m * correction1) / (std::sqrt(v) * root_correction2 + epsilon);
  }
  static constexpr double power(double base, std::int64_t exponent) {
    return std::pow(base, static_cast<double>(exponent));
  }
  A beta1, beta2, rest1, rest2, correction1, root_correction2, epsilon, scale;
};

/// Returns LAMB's direction, in either pass, and updates m and v.
template <class A>
struct LambDirection {
  constexpr LambDirection(const AdamStep<A>& moves, double own_decay)
      : adam(moves), decay(static_cast<A>(own_decay)) {}

  constexpr A operator()(A weight, A gradient, A& m, A& v) const {
    return adam(gradient, m, v) + decay * weight;
  }
  AdamStep<A> adam;
  A decay;
};

/// A rule of an update, the same on all devices: prepare<A>(state) returns constants in the accumulation type;
/// step(constants, state, tile) returns a function (weight, gradient, moments...) -> new weight. `moments` is the
/// number of moments: 0, 1 (m) or 2 (m and v). It is a constant, because nvcc would otherwise not store in packs.
template <int moments_>
struct SgdRule {
  static constexpr int moments = moments_;
  SgdUpdate update;
  const double* rates;  ///< by parameter, or null

  template <class A>
  constexpr A prepare(const StepState& state) const {
    return static_cast<A>(state.gradient_scale);
  }
  template <class A>
  constexpr auto step(A scale, const StepState& state, const SegmentTile& tile) const {
    const A rate = static_cast<A>(tile_rate(tile, state, rates));
    const A decay = static_cast<A>(tile_decay(tile, update.weight_decay));
    [[maybe_unused]] const A mu = static_cast<A>(update.momentum);
    [[maybe_unused]] const bool nesterov = update.nesterov, inside = update.rate_in_momentum;
    if constexpr (moments == 0)
      return
          [=](A weight, A gradient) { return weight - rate * (scale * gradient + decay * weight); };
    else
      return [=](A weight, A gradient, A& m) {
        const A plain = scale * gradient + decay * weight;
        const A g = inside ? rate * plain : plain;
        m = mu * m + g;
        const A direction = nesterov ? g + mu * m : m;
        return weight - (inside ? direction : rate * direction);
      };
  }
};

struct AdamRule {
  static constexpr int moments = 2;
  AdamUpdate update;

  template <class A>
  constexpr AdamStep<A> prepare(const StepState& state) const {
    return {update, state};
  }
};

struct AdamwRule : AdamRule {
  template <class A>
  constexpr auto step(const AdamStep<A>& adam, const StepState& state,
                      const SegmentTile& tile) const {
    const A rate = static_cast<A>(state.learning_rate);
    const double decay = tile_decay(tile, update.weight_decay);
    const A kept = static_cast<A>(1 - state.learning_rate * decay);
    return [=](A weight, A gradient, A& m, A& v) {
      return kept * weight - rate * adam(gradient, m, v);
    };
  }
};

struct LambRule : AdamRule {
  const double* rates;

  template <class A>
  constexpr auto step(const AdamStep<A>& adam, const StepState& state,
                      const SegmentTile& tile) const {
    const LambDirection<A> direction(adam, tile_decay(tile, update.weight_decay));
    const A rate = static_cast<A>(tile_rate(tile, state, rates));
    return [=](A weight, A gradient, A& m, A& v) {
      return weight - rate * direction(weight, gradient, m, v);
    };
  }
};

/// The rule of moving averages; the gradients are sums of statistics.
struct MovingAverageRule {
  static constexpr int moments = 0;
  double momentum;
  std::int64_t parts;

  template <class A>
  constexpr A prepare(const StepState&) const {
    return static_cast<A>(momentum / static_cast<double>(parts));
  }
  template <class A>
  constexpr auto step(A factor, const StepState&, const SegmentTile&) const {
    return [factor, kept = static_cast<A>(1 - momentum)](A value, A sum) {
      return kept * value + factor * sum;
    };
  }
};

template <Device Dev>
void check_squares(const char* op, ConstView<Dev> first, ConstView<Dev> second,
                   ConstView<Dev> rates) {
  for (const auto& view : {first, second, rates})
    if (view.dtype() != DType::f64 || view.count() != rates.count())
      fail(op, ": squared norms and rates are f64 of one count, got ", view.dtype(), " ",
           view.shape(), " beside ", rates.shape());
}

/// AdamW (Loshchilov & Hutter 2019): w -= lr * (m^ / (sqrt(v^) + epsilon) + decay * w), with bias-corrected moving
/// averages m^, v^ of g and g^2. gradient, m, v, masters [table.size()]; only 16-bit values have masters.
template <Device Dev>
void adamw_update(Dev& dev, const AdamUpdate& update, const SegmentTable<Dev>& table,
                  InView<Dev> state, InView<Dev> gradient, OutView<Dev> m, OutView<Dev> v,
                  OutView<Dev> masters) {
  check_step_state<Dev>(state);
  check_flat<Dev>("adamw_update", "the gradient", table, gradient);
  check_flat<Dev>("adamw_update", "m", table, m);
  check_flat<Dev>("adamw_update", "v", table, v);
  check_masters<Dev>("adamw_update", table, masters);
  if (table.tile_count() > 0)
    update_weights_on(dev, AdamwRule{{update}}, table, state, gradient, m, v, masters);
}

/// The first pass of LAMB. The direction is m^ / (sqrt(v^) + epsilon) + decay * w, with the new m and v, which this
/// pass does not store. Writes the sums of squared weights and of squared directions per tile, f64 [table.sum_count()],
/// in the order of tile_squares. gradient, m, v, masters [table.size()].
template <Device Dev>
void lamb_squares(Dev& dev, const AdamUpdate& update, const SegmentTable<Dev>& table,
                  InView<Dev> state, InView<Dev> gradient, InView<Dev> m, InView<Dev> v,
                  InView<Dev> masters, OutView<Dev> weights, OutView<Dev> directions) {
  check_step_state<Dev>(state);
  check_flat<Dev>("lamb_squares", "the gradient", table, gradient);
  check_flat<Dev>("lamb_squares", "m", table, m);
  check_flat<Dev>("lamb_squares", "v", table, v);
  check_masters<Dev>("lamb_squares", table, masters);
  check_sums<Dev>("lamb_squares", table, weights);
  check_sums<Dev>("lamb_squares", table, directions);
  if (table.tile_count() > 0)
    lamb_squares_on(dev, update, table, state, gradient, m, v, masters, weights, directions);
}

/// The second pass of LAMB: w -= rate * direction, with the direction of lamb_squares. Stores m and v. The rate is
/// rates[parameter], f64 [P], for segments that decay, and the learning rate for others. gradient, m, v, masters
/// [table.size()].
template <Device Dev>
void lamb_update(Dev& dev, const AdamUpdate& update, const SegmentTable<Dev>& table,
                 InView<Dev> state, InView<Dev> rates, InView<Dev> gradient, OutView<Dev> m,
                 OutView<Dev> v, OutView<Dev> masters) {
  check_step_state<Dev>(state);
  check_by_parameter<Dev>("lamb_update", "rates", table, rates);
  check_flat<Dev>("lamb_update", "the gradient", table, gradient);
  check_flat<Dev>("lamb_update", "m", table, m);
  check_flat<Dev>("lamb_update", "v", table, v);
  check_masters<Dev>("lamb_update", table, masters);
  if (table.tile_count() > 0)
    update_weights_on(dev, LambRule{{update}, data_or_null<double>(rates)}, table, state, gradient,
                      m, v, masters);
}
/// LARS (You, Gitman, Ginsburg 2017): rates[p] = lr * trust |w| / (|g| + decay |w|), or lr if |w| or the divisor is
/// 0. The inputs are squared norms of weights and of unscaled gradients, f64 [P].
template <Device Dev>
void lars_rates(Dev& dev, const LarsRule& rule, InView<Dev> state, InView<Dev> weights,
                InView<Dev> gradients, OutView<Dev> rates) {
  check_step_state<Dev>(state);
  check_squares<Dev>("lars_rates", weights, gradients, rates);
  layer_rates_on(dev, rule, state, weights, gradients, rates);
}

/// LAMB (You et al. 2020, algorithm 2): rates[p] = lr * |w| / |direction|, or lr if a norm is 0. The squared norms of
/// weights and of directions and the rates are f64 [P].
template <Device Dev>
void lamb_rates(Dev& dev, InView<Dev> state, InView<Dev> weights, InView<Dev> directions,
                OutView<Dev> rates) {
  check_step_state<Dev>(state);
  check_squares<Dev>("lamb_rates", weights, directions, rates);
  layer_rates_on(dev, LambRate(), state, weights, directions, rates);
}

}  // namespace detail

/// g = gradient_scale * gradient + decay * w; m = mu m + g; w -= rate * (nesterov ? g + mu m : m). With
/// rate_in_momentum: m = mu m + rate * g, w -= m. The rate is the learning rate; for segments that decay it is
/// rates[parameter], f64 [P], unless rates is empty. gradient, momentum (empty if mu is 0) and masters are
/// [table.size()].
template <Device Dev>
void sgd_update(Dev& dev, const detail::SgdUpdate& update, const detail::SegmentTable<Dev>& table,
                InView<Dev> state, InView<Dev> rates, InView<Dev> gradient, OutView<Dev> momentum,
                OutView<Dev> masters) {
  detail::check_step_state<Dev>(state);
  if (!rates.empty()) detail::check_by_parameter<Dev>("sgd_update", "rates", table, rates);
  detail::check_flat<Dev>("sgd_update", "the gradient", table, gradient);
  detail::check_masters<Dev>("sgd_update", table, masters);
  check(!momentum.empty() || update.momentum == 0 || table.size() == 0, "sgd_update: momentum ",
        update.momentum, " needs a buffer for it");
  if (!momentum.empty()) detail::check_flat<Dev>("sgd_update", "the momentum", table, momentum);
  const auto* const by_parameter = detail::data_or_null<double>(rates);
  const auto update_by = [&](const auto& rule) {
    update_weights_on(dev, rule, table, state, gradient, momentum, OutView<Dev>(), masters);
  };
  if (table.tile_count() == 0) return;
  if (momentum.empty()) update_by(detail::SgdRule<0>{update, by_parameter});
  else update_by(detail::SgdRule<1>{update, by_parameter});
}

/// Updates exponential moving averages, the running statistics of batch norms: value = (1 - momentum) * value +
/// momentum * sum / parts. sums [table.size()] is indexed like gradients.
template <Device Dev>
void update_moving_averages(Dev& dev, double momentum, std::int64_t parts,
                            const detail::SegmentTable<Dev>& table, InView<Dev> state,
                            InView<Dev> sums) {
  detail::check_step_state<Dev>(state);
  check(parts > 0, "update_moving_averages: sums of ", parts, " parts have no mean");
  check(0 <= momentum && momentum <= 1,
        "update_moving_averages: the momentum, the weight of new values, lies in 0..1, got ",
        momentum);
  detail::check_flat<Dev>("update_moving_averages", "the sums", table, sums);
  check(!table.has_narrow(), "update_moving_averages: the values of moving averages are of ",
        table.accumulation());
  if (table.tile_count() > 0)
    update_weights_on(dev, detail::MovingAverageRule{momentum, parts}, table, state, sums,
                      OutView<Dev>(), OutView<Dev>(), OutView<Dev>());
}

}  // namespace dhp
