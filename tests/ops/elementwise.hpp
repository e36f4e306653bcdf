// Cases of elementwise ops on any device.
#pragma once

#include <dhp/ops/elementwise.hpp>
#include <tests/support/sides.hpp>

namespace tests {

/// Checks casts and sums of any types from element `skip` on: a cast is rounded once, a sum almost so.
template <class Dev>
void check_mixed_types(std::int64_t count, std::int64_t skip = 0) {
  auto dev = tested_device<Dev>();
  const auto part = [&](auto view) { return view.slice(skip, count); };
  const auto types = {DType::f64, DType::f32, DType::bf16, DType::f16};
  for (const auto to : types)
    for (const auto from : types) {
      INFO("to ", to, " from ", from, " skip ", skip);
      const double close = to == DType::f64    ? 1e-15
                           : to == DType::f32  ? 3e-7
                           : to == DType::bf16 ? 5e-3
                                               : 7e-4;
      const auto x = random_tensor(dev, from, {count}, 1);
      auto y = random_tensor(dev, to, {count}, 2);
      const auto values_of = [&](const auto& of) { return widened<Dev>(dev, part(of.view())); };
      const auto values = values_of(x);
      auto right = values_of(y);
      for (std::size_t i = 0; i < values.size(); ++i) right[i] += 0.5 * values[i];
      axpy(dev, 0.5, part(x.view()), part(y.mut()));
      CHECK(element_error(values_of(y), right) <= close);
      visit_floating(to, [&]<class T>(TypeTag<T>) {
        for (std::size_t i = 0; i < values.size(); ++i)
          right[i] = static_cast<double>(static_cast<T>(values[i]));
      });
      cast(dev, part(x.view()), part(y.mut()));
      CHECK(values_of(y) == right);
      for (const auto other : types) {
        const auto b = random_tensor(dev, other, {count}, 3);
        const auto more = values_of(b);
        for (std::size_t i = 0; i < values.size(); ++i) right[i] = values[i] + more[i];
        add(dev, part(x.view()), part(b.view()), part(y.mut()));
        CHECK(element_error(values_of(y), right) <= close);
      }
    }
}

}  // namespace tests
