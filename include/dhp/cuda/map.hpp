// map: y[i] = f(x[i]...), the kernel of elementwise ops. It moves up to 16 bytes at a time if arrays are aligned.
#pragma once

#include <dhp/core/types.hpp>
#include <dhp/cuda/block.hpp>

#include <tuple>
#include <utility>

namespace dhp::detail::cuda {

/// Computes f in the accumulation type and rounds once.
template <class T, class F>
struct Rounded {
  F f;
  constexpr T operator()(auto... x) const {
    return static_cast<T>(f(static_cast<Accumulator<T>>(x)...));
  }
};

/// f maps one stored element of each x to a stored element of y. y may alias an x.
template <class F, int width, class Y, class... X>
struct Map {
  F f;
  std::int64_t count;
  Y* y;
  std::tuple<const X*...> x;

  constexpr void operator()(auto& block) const {
    const std::int64_t packs = count / width;
    for (auto pack = grid_thread(block); pack < packs; pack += grid_threads(block))
      one_pack(pack * width, std::index_sequence_for<X...>());
    // Maps the remainder, less than a pack.
    for (auto at = packs * width + grid_thread(block); at < count; at += grid_threads(block))
      y[at] = element(at, std::index_sequence_for<X...>());
  }

 private:
  template <std::size_t... index>
  constexpr void one_pack(std::int64_t first, std::index_sequence<index...>) const {
    const std::tuple<Pack<X, width>...> in{load<width>(std::get<index>(x) + first)...};
    Pack<Y, width> out;
    for (int at = 0; at < width; ++at) out.at[at] = f(std::get<index>(in).at[at]...);
    store<width>(y + first, out);
  }
  template <std::size_t... index>
  constexpr Y element([[maybe_unused]] std::int64_t at, std::index_sequence<index...>) const {
    return f(std::get<index>(x)[at]...);
  }
};

template <KernelDevice Dev, class F, class Y, class... X>
void map(Dev& dev, std::int64_t count, F f, Y* y, const X*... x) {
  if (count == 0) return;
  constexpr int width = 16 / static_cast<int>(std::max({sizeof(Y), sizeof(X)...}));
  if (packs_fit<width>(0, y, x...))
    launch(dev, grid_for(dev, (count + width - 1) / width),
           Map<F, width, Y, X...>{f, count, y, {x...}});
  else launch(dev, grid_for(dev, count), Map<F, 1, Y, X...>{f, count, y, {x...}});
}

}  // namespace dhp::detail::cuda
