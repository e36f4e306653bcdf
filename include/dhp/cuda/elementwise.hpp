#pragma once

#include <dhp/cuda/map.hpp>
#include <dhp/ops/elementwise.hpp>
#include <dhp/tensor/tensor.hpp>

#include <cmath>

namespace dhp::cuda {

template <class Y>
struct Constant {
  Y value;
  constexpr Y operator()() const { return value; }
};

template <class T>
struct Sum {
  using A = Accumulator<T>;
  constexpr T operator()(T a, T b) const {
    return static_cast<T>(static_cast<A>(a) + static_cast<A>(b));
  }
};

template <class Y>
struct ScaledSum {
  using A = Accumulator<Y>;
  A alpha;
  template <class X>
  constexpr Y operator()(Y y, X x) const {
    return static_cast<Y>(static_cast<A>(y) + alpha * static_cast<A>(x));
  }
};

template <class Y>
struct Scaled {
  using A = Accumulator<Y>;
  A alpha;
  constexpr Y operator()(Y y) const { return static_cast<Y>(static_cast<A>(y) * alpha); }
};

/// The factor is in device memory.
template <class Y>
struct ScaledBy {
  using A = Accumulator<Y>;
  double alpha;
  const double* factor;
  constexpr Y operator()(Y y) const {
    return static_cast<Y>(static_cast<A>(y) * static_cast<A>(alpha * *factor));
  }
};

template <class Y>
struct Cast {
  template <class X>
  constexpr Y operator()(X x) const {
    if constexpr (is_16_bit<X>) return static_cast<Y>(static_cast<float>(x));
    else return static_cast<Y>(x);
  }
};

template <class T>
struct Rsqrt {
  using A = Accumulator<T>;
  A epsilon;
  constexpr T operator()(T x) const {
    return static_cast<T>(A(1) / std::sqrt(static_cast<A>(x) + epsilon));
  }
};

}  // namespace dhp::cuda

namespace dhp {

template <KernelDevice Dev>
void fill_on(Dev& dev, View<Dev> y, double value) {
  visit_floating(y.dtype(), [&]<class T>(Tag<T>) {
    cuda::map(dev, y.count(), cuda::Constant<T>{static_cast<T>(value)}, y.template data<T>());
  });
}
template <KernelDevice Dev>
void axpy_on(Dev& dev, double alpha, ConstView<Dev> x, View<Dev> y) {
  visit_floating(y.dtype(), [&]<class T>(Tag<T>) {
    T* const out = y.template data<T>();
    const cuda::ScaledSum<T> f{static_cast<Accumulator<T>>(alpha)};
    visit_floating(x.dtype(), [&]<class X>(Tag<X>) {
      cuda::map(dev, y.count(), f, out, static_cast<const T*>(out), x.template data<X>());
    });
  });
}
template <KernelDevice Dev>
void scale_on(Dev& dev, double alpha, View<Dev> y) {
  visit_floating(y.dtype(), [&]<class T>(Tag<T>) {
    T* const out = y.template data<T>();
    const cuda::Scaled<T> f{static_cast<Accumulator<T>>(alpha)};
    cuda::map(dev, y.count(), f, out, static_cast<const T*>(out));
  });
}
template <KernelDevice Dev>
void scale_by_on(Dev& dev, double alpha, ConstView<Dev> factor, View<Dev> y) {
  visit_floating(y.dtype(), [&]<class T>(Tag<T>) {
    T* const out = y.template data<T>();
    const cuda::ScaledBy<T> f{alpha, factor.template data<double>()};
    cuda::map(dev, y.count(), f, out, static_cast<const T*>(out));
  });
}
template <KernelDevice Dev>
void cast_on(Dev& dev, ConstView<Dev> x, View<Dev> y) {
  visit_floating(y.dtype(), [&]<class T>(Tag<T>) {
    visit_floating(x.dtype(), [&]<class X>(Tag<X>) {
      cuda::map(dev, y.count(), cuda::Cast<T>{}, y.template data<T>(), x.template data<X>());
    });
  });
}
template <KernelDevice Dev>
void add_on(Dev& dev, ConstView<Dev> a, ConstView<Dev> b, View<Dev> y) {
  visit_floating(y.dtype(), [&]<class T>(Tag<T>) {
    T* const out = y.template data<T>();
    if (a.dtype() == y.dtype() && b.dtype() == y.dtype()) {
      cuda::map(dev, y.count(), cuda::Sum<T>{}, out, a.template data<T>(), b.template data<T>());
      return;
    }
    // Mixed types are rare: three passes via double avoid a kernel per triple of types.
    Tensor<Dev> total(dev, DType::f64, a.shape());
    cast_on(dev, a, total.mut());
    axpy_on(dev, 1.0, b, total.mut());
    cast_on(dev, total.view(), y);
  });
}
template <KernelDevice Dev>
void rsqrt_on(Dev& dev, ConstView<Dev> x, double epsilon, View<Dev> y) {
  visit_floating(y.dtype(), [&]<class T>(Tag<T>) {
    const cuda::Rsqrt<T> f{static_cast<Accumulator<T>>(epsilon)};
    cuda::map(dev, y.count(), f, y.template data<T>(), x.template data<T>());
  });
}

}  // namespace dhp
