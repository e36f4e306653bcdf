// Fused optimizer updates on the Cpu.
#pragma once

#include <dhp/cpu/step.hpp>
#include <dhp/ops/optimizer.hpp>

namespace dhp::cpu {

/// T is the type of the values.
template <class T>
struct OptimizerKernel {
  using A = Accumulator<T>;
  static void sgd(Cpu& dev, const SgdStep<A>& step, std::int64_t count, const A* gradient,
                  A* momentum, A* master, T* value);
  static void adamw(Cpu& dev, const AdamStep<A>& adam, double lr, double decay, std::int64_t count,
                    const A* gradient, A* m, A* v, A* master, T* value);
  static void lamb(Cpu& dev, const AdamStep<A>& adam, double decay, std::int64_t count,
                   const A* gradient, A* m, A* v, const A* master, A* direction);
  static void apply(Cpu& dev, double rate, std::int64_t count, const A* direction, A* master,
                    T* value);

 private:
  /// step(at) gives the new weight of element `at`.
  template <class Step>
  static void update_all(Cpu& dev, std::int64_t count, A* master, T* value, Step step) {
    dev.for_ranges(count, elementwise_tile, [=](std::int64_t first, std::int64_t last) {
      for (auto at = first; at < last; ++at) master[at] = step(at);
      if constexpr (!is_16_bit<T>)
        if (master == value) return;
      for (auto at = first; at < last; ++at) value[at] = static_cast<T>(master[at]);  // from cache
    });
  }
};

template <class T>
void OptimizerKernel<T>::sgd(Cpu& dev, const SgdStep<A>& step, std::int64_t count,
                             const A* gradient, A* momentum, A* master, T* value) {
  if (momentum == nullptr)
    update_all(dev, count, master, value,
               [=](std::int64_t at) { return step.without_momentum(master[at], gradient[at]); });
  else
    update_all(dev, count, master, value,
               [=](std::int64_t at) { return step(master[at], gradient[at], momentum[at]); });
}

template <class T>
void OptimizerKernel<T>::adamw(Cpu& dev, const AdamStep<A>& adam, double rate, double decay,
                               std::int64_t count, const A* gradient, A* m, A* v, A* master,
                               T* value) {
  const A lr = static_cast<A>(rate);
  const A kept = static_cast<A>(1 - rate * decay);
  update_all(dev, count, master, value, [=](std::int64_t at) {
    return kept * master[at] - lr * adam(gradient[at], m[at], v[at]);
  });
}

template <class T>
void OptimizerKernel<T>::lamb(Cpu& dev, const AdamStep<A>& adam, double weight_decay,
                              std::int64_t count, const A* gradient, A* m, A* v, const A* master,
                              A* direction) {
  const A decay = static_cast<A>(weight_decay);
  dev.for_ranges(count, elementwise_tile, [=](std::int64_t first, std::int64_t last) {
    for (auto at = first; at < last; ++at)
      direction[at] = adam(gradient[at], m[at], v[at]) + decay * master[at];
  });
}

template <class T>
void OptimizerKernel<T>::apply(Cpu& dev, double rate, std::int64_t count, const A* direction,
                               A* master, T* value) {
  const A factor = static_cast<A>(rate);
  update_all(dev, count, master, value,
             [=](std::int64_t at) { return master[at] - factor * direction[at]; });
}

}  // namespace dhp::cpu

namespace dhp {

inline void sgd_update_on(Cpu& dev, const SgdUpdate& update, ConstView<Cpu> state,
                          ConstView<Cpu> rate, ConstView<Cpu> gradient, View<Cpu> momentum,
                          View<Cpu> master, View<Cpu> value) {
  const auto& now = cpu::step_state(state);
  if (now.go == 0) return;
  visit_floating(value.dtype(), [&]<class T>(Tag<T>) {
    using A = Accumulator<T>;
    cpu::OptimizerKernel<T>::sgd(
        dev, SgdStep<A>(update, now, *rate.data<double>()), value.count(), gradient.data<A>(),
        momentum.empty() ? nullptr : momentum.data<A>(), master.data<A>(), value.data<T>());
  });
}
inline void adamw_update_on(Cpu& dev, const AdamUpdate& update, ConstView<Cpu> state,
                            ConstView<Cpu> gradient, View<Cpu> m, View<Cpu> v, View<Cpu> master,
                            View<Cpu> value) {
  const auto& now = cpu::step_state(state);
  if (now.go == 0) return;
  visit_floating(value.dtype(), [&]<class T>(Tag<T>) {
    using A = Accumulator<T>;
    cpu::OptimizerKernel<T>::adamw(dev, AdamStep<A>(update, now), now.learning_rate,
                                   update.weight_decay, value.count(), gradient.data<A>(),
                                   m.data<A>(), v.data<A>(), master.data<A>(), value.data<T>());
  });
}
inline void lamb_direction_on(Cpu& dev, const AdamUpdate& update, ConstView<Cpu> state,
                              ConstView<Cpu> gradient, View<Cpu> m, View<Cpu> v,
                              ConstView<Cpu> master, View<Cpu> direction) {
  const auto& now = cpu::step_state(state);
  if (now.go == 0) return;
  visit_accumulator(gradient.dtype(), [&]<class A>(Tag<A>) {
    cpu::OptimizerKernel<A>::lamb(dev, AdamStep<A>(update, now), update.weight_decay,
                                  direction.count(), gradient.data<A>(), m.data<A>(), v.data<A>(),
                                  master.data<A>(), direction.data<A>());
  });
}
inline void apply_direction_on(Cpu& dev, ConstView<Cpu> state, ConstView<Cpu> rate,
                               ConstView<Cpu> direction, View<Cpu> master, View<Cpu> value) {
  if (cpu::step_state(state).go == 0) return;
  visit_floating(value.dtype(), [&]<class T>(Tag<T>) {
    using A = Accumulator<T>;
    cpu::OptimizerKernel<T>::apply(dev, *rate.data<double>(), value.count(), direction.data<A>(),
                                   master.data<A>(), value.data<T>());
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
