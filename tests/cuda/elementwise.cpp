// Elementwise ops: counts around the width of a pack, addresses that do not allow packs, mixed types.
#include <dhp/cpu/elementwise.hpp>
#include <dhp/cuda/elementwise.hpp>
#include <tests/cuda/gpu.hpp>

TEST_CASE_TEMPLATE("add, scale and cast agree with the Cpu", T, double, float, bf16, f16) {
  Sides<T, false> sides;
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

TEST_CASE("casts and sums of any two types, at any address, are rounded once") {
  Sides<float, false> sides;
  const auto types = {DType::f64, DType::f32, DType::bf16, DType::f16};
  for (const auto from : types)
    for (const auto to : types)
      for (const std::int64_t skip : {0, 1}) {
        INFO("from ", from, " to ", to);
        const auto [got, expected] = sides([&](auto& side) -> Results {
          const auto x = random_tensor(side.dev, from, {37}, 1);
          auto y = random_tensor(side.dev, to, {37}, 2), z = random_tensor(side.dev, to, {37}, 3);
          const auto part = [&](auto view) { return view.slice(skip, 37); };
          cast(side.dev, part(x.view()), part(y.mut()));
          axpy(side.dev, 0.5, part(x.view()), part(z.mut()));
          return side.results(y, z);
        });
        CHECK(got[0] == expected[0]);
        const bool narrow = size_of(to) == 2;  // a fused sum rounds once, one in two steps twice
        CHECK(distance(got[1], expected[1]) <= (narrow             ? tolerance<bf16>
                                                : to == DType::f32 ? 2e-7
                                                                   : 1e-15));
      }
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

TEST_CASE("add of mixed types is rounded once") {
  has_bits_of_cpu<float>([](auto& side) -> Results {
    const Shape shape{37};
    const auto b = random_tensor(side.dev, DType::bf16, shape, 2);
    Tensor y(side.dev, DType::f16, shape);
    add(side.dev, side.elements(shape, 1), b, y.mut());
    return side.results(y);
  });
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
