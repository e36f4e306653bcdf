// Fused optimizer updates on the Cpu.
#pragma once

#include <dhp/cpu/elementwise.hpp>
#include <dhp/ops/optimizer.hpp>

#include <cmath>

namespace dhp::cpu {

/// T is the type of the values.
template <class T>
struct OptimizerKernel {
  using A = Accumulator<T>;
  static void sgd(Cpu& dev, const SgdUpdate& update, std::int64_t count, const A* gradient,
                  A* momentum, A* master, T* value);
  static void adamw(Cpu& dev, const AdamUpdate& update, std::int64_t count, const A* gradient, A* m,
                    A* v, A* master, T* value);
  static void lamb(Cpu& dev, const AdamUpdate& update, std::int64_t count, const A* gradient, A* m,
                   A* v, const A* master, A* direction);
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

/// Adam's moving means and their quotient, for one element.
template <class A>
struct AdamStep {
  explicit AdamStep(const AdamUpdate& update)
      : beta1(static_cast<A>(update.beta1)),
        beta2(static_cast<A>(update.beta2)),
        rest1(static_cast<A>(1 - update.beta1)),
        rest2(static_cast<A>(1 - update.beta2)),
        correction1(
            static_cast<A>(1 / (1 - std::pow(update.beta1, static_cast<double>(update.step))))),
        root_correction2(static_cast<A>(
            1 / std::sqrt(1 - std::pow(update.beta2, static_cast<double>(update.step))))),
        epsilon(static_cast<A>(update.epsilon)),
        scale(static_cast<A>(update.gradient_scale)) {}

  A operator()(A gradient, A& m, A& v) const {
    const A g = scale * gradient;
    m = beta1 * m + rest1 * g;
    v = beta2 * v + rest2 * g * g;
    return (m * correction1) / (std::sqrt(v) * root_correction2 + epsilon);
  }
  A beta1, beta2, rest1, rest2, correction1, root_correction2, epsilon, scale;
};

template <class T>
void OptimizerKernel<T>::sgd(Cpu& dev, const SgdUpdate& update, std::int64_t count,
                             const A* gradient, A* momentum, A* master, T* value) {
  const A lr = static_cast<A>(update.lr);
  const A mu = static_cast<A>(update.momentum);
  const A decay = static_cast<A>(update.weight_decay);
  const A scale = static_cast<A>(update.gradient_scale);
  const bool nesterov = update.nesterov;
  if (momentum == nullptr)
    update_all(dev, count, master, value, [=](std::int64_t at) {
      return master[at] - lr * (scale * gradient[at] + decay * master[at]);
    });
  else
    update_all(dev, count, master, value, [=](std::int64_t at) {
      const A g = scale * gradient[at] + decay * master[at];
      const A m = mu * momentum[at] + g;
      momentum[at] = m;
      return master[at] - lr * (nesterov ? g + mu * m : m);
    });
}

template <class T>
void OptimizerKernel<T>::adamw(Cpu& dev, const AdamUpdate& update, std::int64_t count,
                               const A* gradient, A* m, A* v, A* master, T* value) {
  const AdamStep<A> adam(update);
  const A lr = static_cast<A>(update.lr);
  const A kept = static_cast<A>(1 - update.lr * update.weight_decay);
  update_all(dev, count, master, value, [=](std::int64_t at) {
    return kept * master[at] - lr * adam(gradient[at], m[at], v[at]);
  });
}

template <class T>
void OptimizerKernel<T>::lamb(Cpu& dev, const AdamUpdate& update, std::int64_t count,
                              const A* gradient, A* m, A* v, const A* master, A* direction) {
  const AdamStep<A> adam(update);
  const A decay = static_cast<A>(update.weight_decay);
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

inline void sgd_update_on(Cpu& dev, const SgdUpdate& update, ConstView<Cpu> gradient,
                          View<Cpu> momentum, View<Cpu> master, View<Cpu> value) {
  visit_floating(value.dtype(), [&]<class T>(Tag<T>) {
    using A = Accumulator<T>;
    cpu::OptimizerKernel<T>::sgd(dev, update, value.count(), gradient.data<A>(),
                                 momentum.empty() ? nullptr : momentum.data<A>(), master.data<A>(),
                                 value.data<T>());
  });
}
inline void adamw_update_on(Cpu& dev, const AdamUpdate& update, ConstView<Cpu> gradient,
                            View<Cpu> m, View<Cpu> v, View<Cpu> master, View<Cpu> value) {
  visit_floating(value.dtype(), [&]<class T>(Tag<T>) {
    using A = Accumulator<T>;
    cpu::OptimizerKernel<T>::adamw(dev, update, value.count(), gradient.data<A>(), m.data<A>(),
                                   v.data<A>(), master.data<A>(), value.data<T>());
  });
}
inline void lamb_direction_on(Cpu& dev, const AdamUpdate& update, ConstView<Cpu> gradient,
                              View<Cpu> m, View<Cpu> v, ConstView<Cpu> master,
                              View<Cpu> direction) {
  visit_accumulator(gradient.dtype(), [&]<class A>(Tag<A>) {
    cpu::OptimizerKernel<A>::lamb(dev, update, direction.count(), gradient.data<A>(), m.data<A>(),
                                  v.data<A>(), master.data<A>(), direction.data<A>());
  });
}
inline void apply_direction_on(Cpu& dev, double rate, ConstView<Cpu> direction, View<Cpu> master,
                               View<Cpu> value) {
  visit_floating(value.dtype(), [&]<class T>(Tag<T>) {
    using A = Accumulator<T>;
    cpu::OptimizerKernel<T>::apply(dev, rate, value.count(), direction.data<A>(), master.data<A>(),
                                   value.data<T>());
  });
}

}  // namespace dhp
