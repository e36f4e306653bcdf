// Cases of gemm on any device.
#pragma once

#include <dhp/ops/elementwise.hpp>
#include <dhp/ops/gemm.hpp>
#include <tests/support/sides.hpp>

namespace tests {

struct GemmCase {
  std::int64_t m, n, k;
  GemmOptions options{};
  bool wide_c = false;  ///< c has the accumulation type
  enum Bias { none, of_t, wide } bias = none;

  [[nodiscard]] std::int64_t padding() const { return options.padded ? 3 : 0; }
  [[nodiscard]] Shape a() const {
    return options.transpose_a ? Shape{k, m + padding()} : Shape{m, k + padding()};
  }
  [[nodiscard]] Shape b() const { return options.transpose_b ? Shape{n, k} : Shape{k, n}; }
  [[nodiscard]] Shape c() const { return {m, n + padding()}; }
};

/// Returns c, with its padding.
Results gemm_results(auto& side, const GemmCase& each) {
  auto c = each.wide_c ? side.sums(each.c(), 3) : side.elements(each.c(), 3);
  if (each.options.beta == 0 && each.padding() == 0) fill(side.dev, c.mut(), NAN);  // never read
  const auto bias =
      each.bias == GemmCase::of_t ? side.elements({each.n}, 4) : side.sums({each.n}, 4);
  gemm(side.dev, side.elements(each.a(), 1), side.elements(each.b(), 2), c.mut(), each.options,
       each.bias == GemmCase::none ? ConstView<std::remove_cvref_t<decltype(side.dev)>>()
                                   : bias.view());
  return side.results(c);
}

template <class T, class Dev>
void check_gemm(const GemmCase& each, double wide_tolerance = tolerance<Accumulator<T>>) {
  INFO("m ", each.m, " n ", each.n, " k ", each.k, " beta ", each.options.beta);
  INFO("transposed ", each.options.transpose_a, each.options.transpose_b, " bias ", each.bias);
  agrees_with_oracle<T, Dev>([&](auto& side) { return gemm_results(side, each); },
                             each.wide_c ? wide_tolerance : tolerance<T>);
}

}  // namespace tests
