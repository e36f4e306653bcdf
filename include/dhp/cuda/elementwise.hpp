#pragma once

#include <dhp/cuda/map.hpp>
#include <dhp/ops/elementwise.hpp>
#include <dhp/tensor/tensor.hpp>

#include <cmath>

namespace dhp::detail::cuda {

template <class Y>
struct Constant {
  Y value;
  constexpr Y operator()() const { return value; }
};

template <class A>
struct AddScaled {
  A alpha;
  constexpr A operator()(A y, A x) const { return y + alpha * x; }
};

/// Computes to = beta * to + factor * from for two pairs of short vectors, in one launch.
template <class T>
struct AddBoth {
  using A = Accumulator<T>;
  struct Each {
    A factor;
    std::int64_t count;
    const T* from;
    T* to;
  };
  Each one, other;
  A beta;

  constexpr void operator()(auto& block) const {
    add(block, one);
    add(block, other);
  }

 private:
  constexpr void add(const auto& block, const Each& each) const {
    for (auto at = grid_thread(block); at < each.count; at += grid_threads(block)) {
      const A kept = beta == A(0) ? A(0) : beta * static_cast<A>(each.to[at]);
      each.to[at] = static_cast<T>(kept + each.factor * static_cast<A>(each.from[at]));
    }
  }
};

template <class A>
struct Scaled {
  double alpha;
  const double* factor;  ///< may be null, which stands for 1
  constexpr A operator()(A y) const {
    return y * static_cast<A>(factor == nullptr ? alpha : alpha * *factor);
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

template <class A>
struct Rsqrt {
  A epsilon;
  constexpr A operator()(A x) const { return A(1) / std::sqrt(x + epsilon); }
};

}  // namespace dhp::detail::cuda

namespace dhp::detail {

template <KernelDevice Dev>
void fill_on(Dev& dev, View<Dev> y, double value) {
  visit_floating(y.dtype(), [&]<class T>(TypeTag<T>) {
    cuda::map(dev, y.count(), cuda::Constant<T>{static_cast<T>(value)}, y.template data<T>());
  });
}
template <KernelDevice Dev>
void axpy_on(Dev& dev, double alpha, ConstView<Dev> x, View<Dev> y) {
  visit_floating(y.dtype(), [&]<class T>(TypeTag<T>) {
    T* const out = y.data();
    using A = Accumulator<T>;
    const cuda::Rounded<T, cuda::AddScaled<A>> f{{static_cast<A>(alpha)}};
    visit_floating(x.dtype(), [&]<class X>(TypeTag<X>) {
      cuda::map(dev, y.count(), f, out, static_cast<const T*>(out), x.template data<X>());
    });
  });
}
template <KernelDevice Dev>
void add_both_on(Dev& dev, const AddedVector<Dev>& one, const AddedVector<Dev>& other,
                 double beta) {
  visit_floating(one.to.dtype(), [&]<class T, class A>(Tags<T, A>) {
    const auto each = [](const AddedVector<Dev>& of) -> typename cuda::AddBoth<T>::Each {
      return {static_cast<A>(of.factor), of.to.count(), of.from.data(), of.to.data()};
    };
    launch(dev, cuda::grid_for(dev, std::max(one.to.count(), other.to.count())),
           cuda::AddBoth<T>{each(one), each(other), static_cast<A>(beta)});
  });
}
template <KernelDevice Dev>
void scale_on(Dev& dev, double alpha, ConstView<Dev> factor, View<Dev> y) {
  visit_floating(y.dtype(), [&]<class T, class A>(Tags<T, A>) {
    T* const out = y.data();
    const cuda::Rounded<T, cuda::Scaled<A>> f{{alpha, data_or_null<double>(factor)}};
    cuda::map(dev, y.count(), f, out, static_cast<const T*>(out));
  });
}
template <KernelDevice Dev>
void cast_on(Dev& dev, ConstView<Dev> x, View<Dev> y) {
  visit_floating(y.dtype(), [&]<class T>(TypeTag<T>) {
    visit_floating(x.dtype(), [&]<class X>(TypeTag<X>) {
      cuda::map(dev, y.count(), cuda::Cast<T>{}, y.template data<T>(), x.template data<X>());
    });
  });
}
template <KernelDevice Dev>
void add_on(Dev& dev, ConstView<Dev> a, ConstView<Dev> b, View<Dev> y) {
  visit_floating(y.dtype(), [&]<class T>(TypeTag<T>) {
    T* const out = y.data();
    if (a.dtype() == y.dtype() && b.dtype() == y.dtype()) {
      cuda::map(dev, y.count(), cuda::Rounded<T, cuda::Plus>{}, out, a.template data<T>(),
                b.template data<T>());
      return;
    }
    // Mixed types are rare. Three passes in double avoid a kernel for each triple of types.
    Tensor<Dev> total(dev, DType::f64, a.shape());
    cast_on(dev, a, total.mut());
    axpy_on(dev, 1.0, b, total.mut());
    cast_on(dev, total.view(), y);
  });
}
template <KernelDevice Dev>
void rsqrt_on(Dev& dev, ConstView<Dev> x, double epsilon, View<Dev> y) {
  visit_floating(y.dtype(), [&]<class T, class A>(Tags<T, A>) {
    const cuda::Rounded<T, cuda::Rsqrt<A>> f{{static_cast<A>(epsilon)}};
    cuda::map(dev, y.count(), f, y.template data<T>(), x.template data<T>());
  });
}

namespace cuda {

/// Computes to = beta * to + fresh for any element types.
template <class Dev>
void add_fresh(Dev& dev, ConstView<Dev> fresh, double beta, View<Dev> to) {
  if (beta == 0) return cast_on(dev, fresh, to);
  if (beta != 1) scale_on(dev, beta, ConstView<Dev>(), to);
  axpy_on(dev, 1.0, fresh, to);
}

}  // namespace cuda

}  // namespace dhp::detail
