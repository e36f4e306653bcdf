// Elementwise ops: counts around the width of a pack, addresses that do not allow packs, mixed types.
#include <dhp/cpu/elementwise.hpp>
#include <dhp/cuda/elementwise.hpp>
#include <tests/cuda/gpu.hpp>
#include <tests/ops/elementwise.hpp>

TEST_CASE_TEMPLATE("add, scale and cast agree with the Cpu", T, double, float, bf16, f16) {
  Sides<T, Gpu, false> sides;
  for (const std::int64_t count : {1, 7, 8, 9, 1000, 70000})
    for (const std::int64_t skip : {0, 1}) {
      if (skip >= count) continue;
      INFO("count ", count, " skip ", skip);
      const auto [got, expected] = sides([&](auto& side) -> Results {
        const auto part = [&](auto view) { return view.slice(skip, count); };
        const auto a = side.elements({count}, 1), b = side.elements({count}, 2);
        auto y = side.fresh({count});
        add(side.dev, part(a.view()), part(b.view()), part(y.mut()));
        scale(side.dev, 0.5, part(y.mut()));
        scale(side.dev, 0.5, part(y.mut()), side.tensor({1}, std::vector{3.0}));
        axpy(side.dev, -2.0, part(b.view()), part(y.mut()));
        return side.results(part(y.view()));
      });
      CHECK(distance(got[0], expected[0]) <= tolerance<T> * 8);
    }
}

TEST_CASE("casts and sums of any types, at any address, are right") {
  for (const std::int64_t skip : {0, 1}) check_mixed_types<Gpu>(37, skip);
}

TEST_CASE_TEMPLATE("add_both agrees with the Cpu for two lengths and any beta", T, double, float,
                   bf16, f16) {
  for (const double beta : {0.0, 1.0, 0.5})
    for (const auto& [count, other] : {std::pair(37, 64), {2048, 2048}, {300, 1}}) {
      const auto [got, expected] = with_oracle<T>([&](auto& side) -> Results {
        const auto a = side.elements({count}, 1), b = side.elements({other}, 2);
        auto y = side.elements({count}, 3), z = side.elements({other}, 4);
        if (beta == 0) {
          fill(side.dev, y.mut(), NAN);
          fill(side.dev, z.mut(), NAN);
        }
        detail::add_both(side.dev, {1, a, y.mut()}, {-0.25, b, z.mut()}, beta);
        return side.results(y, z);
      });
      CHECK(distance(got[0], expected[0]) <= tolerance<T> * 4);
      CHECK(distance(got[1], expected[1]) <= tolerance<T> * 4);
    }
}

TEST_CASE_TEMPLATE("fill and rsqrt work at any address", T, double, float, bf16, f16) {
  Gpu gpu;
  for (const std::int64_t skip : {0, 1}) {
    Tensor<Gpu> x(gpu, dtype_of<T>(), {13}), y(gpu, dtype_of<T>(), {13});
    fill(gpu, y.mut(), 2);
    fill(gpu, x.mut().slice(skip, 13), 0.25 - 1e-3);
    rsqrt(gpu, x.view().slice(skip, 13), 1e-3, y.mut().slice(skip, 13));
    CHECK(distance(widened(gpu, y), std::vector<double>(13, 2.0)) < tolerance<T>);
  }
}
