// Activations on the Cpu.
#pragma once

#include <dhp/cpu/elementwise.hpp>
#include <dhp/cpu/vector_math.hpp>
#include <dhp/ops/activation.hpp>

namespace dhp::cpu {

template <class T>
struct ActivationKernel {
  static void forward(Cpu& dev, Activation kind, std::int64_t count, const T* x, T* y);
  static void backward(Cpu& dev, Activation kind, std::int64_t count, const T* saved, const T* dy,
                       T* dx);
};

template <class T>
void ActivationKernel<T>::forward(Cpu& dev, Activation kind, std::int64_t count, const T* x, T* y) {
  using A = Accumulator<T>;
  const auto apply = [&](auto f) {
    dev.for_ranges(count, elementwise_tile, [=](std::int64_t first, std::int64_t last) {
      for (auto at = first; at < last; ++at) y[at] = static_cast<T>(f(static_cast<A>(x[at])));
    });
  };
  switch (kind) {
    case Activation::relu: return apply([](A v) { return v < A(0) ? A(0) : v; });  // NaN stays NaN
    case Activation::gelu: return apply([](A v) { return v * gaussian(v).below; });
    case Activation::tanh: return apply([](A v) { return fast_tanh(v); });
  }
}

template <class T>
void ActivationKernel<T>::backward(Cpu& dev, Activation kind, std::int64_t count, const T* saved,
                                   const T* dy, T* dx) {
  using A = Accumulator<T>;
  const auto apply = [&](auto f) {
    dev.for_ranges(count, elementwise_tile, [=](std::int64_t first, std::int64_t last) {
      for (auto at = first; at < last; ++at)
        dx[at] = static_cast<T>(f(static_cast<A>(saved[at]), static_cast<A>(dy[at])));
    });
  };
  switch (kind) {
    case Activation::relu: return apply([](A y, A g) { return y > A(0) ? g : A(0); });
    case Activation::gelu:
      return apply([](A x, A g) {
        const auto normal = gaussian(x);
        return g * (normal.below + x * normal.density);
      });
    case Activation::tanh: return apply([](A y, A g) { return g * (A(1) - y * y); });
  }
}

}  // namespace dhp::cpu

namespace dhp {

inline void activation_forward_on(Cpu& dev, Activation kind, ConstView<Cpu> x, View<Cpu> y) {
  visit_floating(x.dtype(), [&]<class T>(Tag<T>) {
    cpu::ActivationKernel<T>::forward(dev, kind, x.count(), x.data<T>(), y.data<T>());
  });
}
inline void activation_backward_on(Cpu& dev, Activation kind, ConstView<Cpu> saved,
                                   ConstView<Cpu> dy, View<Cpu> dx) {
  visit_floating(dy.dtype(), [&]<class T>(Tag<T>) {
    cpu::ActivationKernel<T>::backward(dev, kind, dy.count(), saved.data<T>(), dy.data<T>(),
                                       dx.data<T>());
  });
}

}  // namespace dhp
