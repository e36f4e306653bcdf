// Fused optimizer updates on the GPU. What is the same for all elements is worked out by each thread once,
// from the state of the step; a step that does not go is left at the first instruction.
#pragma once

#include <dhp/cuda/step.hpp>
#include <dhp/ops/optimizer.hpp>

namespace dhp::cuda {

/// The state that `count` weights may have beside them; null where the optimizer has none.
template <class T>
struct Weights {
  using A = Accumulator<T>;
  const A* gradient;
  A* m;
  A* v;
  A* master;  ///< null: the values are the masters
  T* value;
};

/// Applies rule.step(...) to all weights, `width` at a time. Rule: prepare(state) gives what a thread needs;
/// that is called with (weight, gradient, m, v) and gives the new weight.
template <class T, class Rule, int width>
struct UpdateWeights {
  using A = Accumulator<T>;
  Rule rule;
  const StepState* state;
  std::int64_t count;
  Weights<T> at;

  template <class B>
  constexpr void operator()(B& block) const {
    if (state->go == 0) return;
    const auto step = rule.prepare(*state);
    for (auto pack = grid_thread(block); pack < count / width; pack += grid_threads(block)) {
      const auto first = pack * width;
      const auto g = load<width>(at.gradient + first);
      auto weight = Pack<A, width>{};
      if (at.master != nullptr) weight = load<width>(at.master + first);
      else if constexpr (!is_16_bit<T>) weight = load<width>(at.value + first);
      auto m = at.m == nullptr ? Pack<A, width>{} : load<width>(at.m + first);
      auto v = at.v == nullptr ? Pack<A, width>{} : load<width>(at.v + first);
      Pack<T, width> rounded{};
      for (int i = 0; i < width; ++i) {
        weight.at[i] = step(weight.at[i], g.at[i], m.at[i], v.at[i]);
        rounded.at[i] = static_cast<T>(weight.at[i]);
      }
      if (at.m != nullptr) store<width>(at.m + first, m);
      if (at.v != nullptr) store<width>(at.v + first, v);
      if (at.master != nullptr) store<width>(at.master + first, weight);
      store<width>(at.value + first, rounded);
    }
  }
};

template <class A>
struct SgdRule {
  SgdUpdate update;
  const double* rate;
  bool has_momentum;
  struct Step {
    SgdStep<A> sgd;
    bool has_momentum;
    constexpr A operator()(A weight, A gradient, A& m, A&) const {
      return has_momentum ? sgd(weight, gradient, m) : sgd.without_momentum(weight, gradient);
    }
  };
  constexpr Step prepare(const StepState& state) const {
    return {SgdStep<A>(update, state, *rate), has_momentum};
  }
};

template <class A>
struct AdamwRule {
  AdamUpdate update;
  struct Step {
    AdamStep<A> adam;
    A lr, kept;
    constexpr A operator()(A weight, A gradient, A& m, A& v) const {
      return kept * weight - lr * adam(gradient, m, v);
    }
  };
  constexpr Step prepare(const StepState& state) const {
    return {AdamStep<A>(update, state), static_cast<A>(state.learning_rate),
            static_cast<A>(1 - state.learning_rate * update.weight_decay)};
  }
};

/// The gradient is the direction.
template <class A>
struct AlongRule {
  const double* rate;
  struct Step {
    A rate;
    constexpr A operator()(A weight, A direction, A&, A&) const {
      return weight - rate * direction;
    }
  };
  constexpr Step prepare(const StepState&) const { return {static_cast<A>(*rate)}; }
};

template <class A>
struct LambDirection {
  AdamUpdate update;
  const StepState* state;
  std::int64_t count;
  const A* gradient;
  A* m;
  A* v;
  const A* master;
  A* direction;

  template <class B>
  constexpr void operator()(B& block) const {
    if (state->go == 0) return;
    const AdamStep<A> adam(update, *state);
    const A decay = static_cast<A>(update.weight_decay);
    for (auto at = grid_thread(block); at < count; at += grid_threads(block))
      direction[at] = adam(gradient[at], m[at], v[at]) + decay * master[at];
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
void update_weights(Dev& dev, const Rule& rule, ConstView<Dev> state, const Weights<T>& at,
                    std::int64_t count) {
  using A = Accumulator<T>;
  if (count == 0) return;
  const auto run = [&]<int width>(std::integral_constant<int, width>, const Weights<T>& from,
                                  std::int64_t elements) {
    launch(dev, grid_for((elements + width - 1) / width),
           UpdateWeights<T, Rule, width>{rule, step_state<Dev>(state), elements, from});
  };
  using One = std::integral_constant<int, 1>;
  using Wide = std::integral_constant<int, pack_size<A>>;
  const auto whole = count / Wide::value * Wide::value;
  // A null pointer is aligned.
  if (whole == 0 || !packs_fit<Wide::value>(0, at.gradient, at.m, at.v, at.master, at.value)) {
    run(One{}, at, count);
    return;
  }
  run(Wide{}, at, whole);
  if (whole == count) return;
  const auto after = [&](auto* pointer) { return pointer == nullptr ? nullptr : pointer + whole; };
  run(One{},
      Weights<T>{at.gradient + whole, after(at.m), after(at.v), after(at.master), at.value + whole},
      count - whole);
}

}  // namespace dhp::cuda

namespace dhp {

namespace detail {
/// Where masters are the values, they are read and written as values only.
template <class A, class Dev>
[[nodiscard]] A* other_master(View<Dev> master, View<Dev> value) {
  return master.bytes() == value.bytes() ? nullptr : master.template data<A>();
}
}  // namespace detail

template <KernelDevice Dev>
void sgd_update_on(Dev& dev, const SgdUpdate& update, ConstView<Dev> state, ConstView<Dev> rate,
                   ConstView<Dev> gradient, View<Dev> momentum, View<Dev> master, View<Dev> value) {
  visit_floating(value.dtype(), [&]<class T>(Tag<T>) {
    using A = Accumulator<T>;
    const cuda::SgdRule<A> rule{update, rate.template data<double>(), !momentum.empty()};
    cuda::update_weights<T>(
        dev, rule, state,
        {gradient.template data<A>(), momentum.empty() ? nullptr : momentum.template data<A>(),
         nullptr, detail::other_master<A>(master, value), value.template data<T>()},
        value.count());
  });
}
template <KernelDevice Dev>
void adamw_update_on(Dev& dev, const AdamUpdate& update, ConstView<Dev> state,
                     ConstView<Dev> gradient, View<Dev> m, View<Dev> v, View<Dev> master,
                     View<Dev> value) {
  visit_floating(value.dtype(), [&]<class T>(Tag<T>) {
    using A = Accumulator<T>;
    cuda::update_weights<T>(
        dev, cuda::AdamwRule<A>{update}, state,
        {gradient.template data<A>(), m.template data<A>(), v.template data<A>(),
         detail::other_master<A>(master, value), value.template data<T>()},
        value.count());
  });
}
template <KernelDevice Dev>
void lamb_direction_on(Dev& dev, const AdamUpdate& update, ConstView<Dev> state,
                       ConstView<Dev> gradient, View<Dev> m, View<Dev> v, ConstView<Dev> master,
                       View<Dev> direction) {
  if (direction.count() == 0) return;
  visit_accumulator(gradient.dtype(), [&]<class A>(Tag<A>) {
    launch(dev, cuda::grid_for(direction.count()),
           cuda::LambDirection<A>{update, cuda::step_state<Dev>(state), direction.count(),
                                  gradient.template data<A>(), m.template data<A>(),
                                  v.template data<A>(), master.template data<A>(),
                                  direction.template data<A>()});
  });
}
template <KernelDevice Dev>
void apply_direction_on(Dev& dev, ConstView<Dev> state, ConstView<Dev> rate,
                        ConstView<Dev> direction, View<Dev> master, View<Dev> value) {
  visit_floating(value.dtype(), [&]<class T>(Tag<T>) {
    using A = Accumulator<T>;
    cuda::update_weights<T>(dev, cuda::AlongRule<A>{rate.template data<double>()}, state,
                            {direction.template data<A>(), nullptr, nullptr,
                             detail::other_master<A>(master, value), value.template data<T>()},
                            value.count());
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

}  // namespace dhp
