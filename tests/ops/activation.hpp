// Cases of activations on any device.
#pragma once

#include <dhp/ops/activation.hpp>
#include <dhp/ops/elementwise.hpp>
#include <tests/support/sides.hpp>

namespace tests {

inline std::vector<Activation> activations() {
  return {Activation::relu, Activation::gelu, Activation::gelu_tanh, Activation::tanh};
}

/// Returns `count` numbers that every type holds, far into the tails of activations.
inline std::vector<double> numbers_with_tails(std::int64_t count) {
  std::vector<double> made;
  for (std::int64_t at = 0; at < count; ++at)
    made.push_back(static_cast<double>(at * 37 % 201 - 100) / 8);
  return made;
}

/// Returns y and dx of elements from `skip` on. The gradient gets x as its saved tensor, even if it expects y there.
Results activation_results(auto& side, Activation kind, std::int64_t count, std::int64_t skip,
                           bool in_place = false) {
  const auto part = [&](auto view) { return view.slice(skip, count); };
  auto x = side.exactly({count}, numbers_with_tails(count)), dy = side.elements({count}, 2),
       y = side.fresh({count}), dx = side.fresh({count});
  auto &to_dx = in_place ? dy : dx, &to_y = in_place ? x : y;
  activation_backward(side.dev, kind, part(x.view()), part(dy.view()), part(to_dx.mut()));
  activation_forward(side.dev, kind, part(x.view()), part(to_y.mut()));
  return side.results(part(to_y.view()), part(to_dx.view()));
}
/// Returns y, dgate and dup.
Results swiglu_results(auto& side, std::int64_t count, std::int64_t skip, bool in_place = false) {
  const auto part = [&](auto view) { return view.slice(skip, count); };
  const auto gate = side.exactly({count}, numbers_with_tails(count));
  auto up = side.elements({count}, 2), dy = side.elements({count}, 3), y = side.fresh({count}),
       dgate = side.fresh({count}), dup = side.fresh({count});
  auto &to_dgate = in_place ? up : dgate, &to_dup = in_place ? dy : dup;
  detail::swiglu_forward(side.dev, part(gate.view()), part(up.view()), part(y.mut()));
  detail::swiglu_backward(side.dev, part(dy.view()), part(gate.view()), part(up.view()),
                          part(to_dgate.mut()), part(to_dup.mut()));
  return side.results(part(y.view()), part(to_dgate.view()), part(to_dup.view()));
}

/// Checks both against the oracle, and that they have the same bits in place.
template <class T, class Dev>
void check_activations(std::int64_t count, std::int64_t skip = 0) {
  INFO("count ", count, " skip ", skip);
  Sides<T, Dev> sides;
  const auto check = [&](const auto& run) {
    const auto got = run(sides.tested, false), expected = run(sides.oracle, false);
    for (std::size_t at = 0; at < expected.size(); ++at)
      CHECK(element_error(got[at], expected[at]) <= 2 * tolerance<T>);
    CHECK(run(sides.tested, true) == got);
  };
  for (const auto kind : activations())
    check([&](auto& side, bool in_place) {
      return activation_results(side, kind, count, skip, in_place);
    });
  check([&](auto& side, bool in_place) { return swiglu_results(side, count, skip, in_place); });
}

/// Checks NaN, infinity, and the digits of small and large inputs.
template <class T, class Dev>
void check_special_activations() {
  Sides<T, Dev> sides;
  const std::vector<double> special{
      NAN, std::numeric_limits<double>::infinity(), -5, -0.0, 30, -100, 0x1p-20};
  const Shape shape{std::ssize(special)};
  for (const auto kind : activations()) {
    CAPTURE(static_cast<int>(kind));
    const auto [got, expected] = sides([&](auto& side) -> Results {
      const auto x = side.exactly(shape, special), one = side.exactly(shape, {1, 1, 1, 1, 1, 1, 1});
      auto y = side.fresh(shape), slope = side.fresh(shape);
      activation_forward(side.dev, kind, x, y.mut());
      activation_backward(side.dev, kind, x, one, slope.mut());
      return side.results(y, slope);
    });
    CHECK(std::isnan(got[0][0]));
    CHECK(std::isnan(got[1][0]) == (kind != Activation::relu));  // ReLU's gradient at NaN is 0
    for (const std::size_t which : {0, 1})
      for (std::size_t at = 1; at < special.size(); ++at) {
        if (which == 1 && at == 1) continue;  // skips gradients at infinity
        const double a = got[which][at], b = expected[which][at];
        const double smallest = is_16_bit<T> ? 0x1p-24 : 0;  // of f16
        CHECK((a == b || std::abs(a - b) <= 3 * tolerance<T> * std::abs(b) + smallest));
      }
  }
}

}  // namespace tests
