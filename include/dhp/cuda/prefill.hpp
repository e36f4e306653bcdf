// prefill: adds a bias to c before a matrix product, if the library cannot.
#pragma once

#include <dhp/cuda/block.hpp>
#include <dhp/tensor/view.hpp>

namespace dhp::cuda {

/// c[r, j] = beta c[r, j] + bias[j]; with beta 0 c is not read.
template <class C, class Bias>
struct Prefill {
  using A = Accumulator<C>;
  A beta;
  std::int64_t rows, columns;
  C* c;
  const Bias* bias;

  template <class B>
  constexpr void operator()(B& block) const {
    for (auto at = grid_thread(block); at < rows * columns; at += grid_threads(block)) {
      const A added = static_cast<A>(bias[at % columns]);
      c[at] = static_cast<C>(beta == A(0) ? added : beta * static_cast<A>(c[at]) + added);
    }
  }
};

/// c [R, N] of an accumulation type, bias [N].
template <KernelDevice Dev>
void prefill(Dev& dev, double beta, ConstView<Dev> bias, View<Dev> c) {
  visit_accumulator(c.dtype(), [&]<class C>(Tag<C>) {
    visit_floating(bias.dtype(), [&]<class T>(Tag<T>) {
      launch(dev, grid_for(c.count()),
             Prefill<C, T>{static_cast<C>(beta), c.rows(), c.columns(), c.template data<C>(),
                           bias.template data<T>()});
    });
  });
}

}  // namespace dhp::cuda
