// Element by element: counts around the width of a pack, addresses that do not allow packs, mixed types.
#include <dhp/cpu/elementwise.hpp>
#include <dhp/cuda/elementwise.hpp>
#include <tests/cuda/gpu.hpp>

#include <doctest/doctest.h>

using namespace dhp;
using namespace tests;

namespace {

// A view that starts `skip` elements into its tensor.
View<Gpu> from(Tensor<Gpu>& tensor, std::int64_t skip) {
  return tensor.mut().slice(skip, tensor.shape()[0]);
}

}  // namespace

TEST_CASE_TEMPLATE("add, scale and cast agree with the Cpu at any count and address", T, double,
                   float, bf16, f16) {
  Gpu gpu;
  Cpu cpu;
  for (const std::int64_t count : {1, 7, 8, 9, 1000, 70000})
    for (const std::int64_t skip : {0, 1}) {
      if (skip >= count) continue;
      CAPTURE(count);
      CAPTURE(skip);
      auto a = random_on<T>(gpu, {count}, 1);
      auto b = random_on<T>(gpu, {count}, 2);
      auto y = Tensor<Gpu>(gpu, dtype_of<T>(), {count});
      const auto factor = Tensor<Gpu>::from_host(gpu, Shape{1}, std::vector<double>{3.0});
      gpu.fill_zero(y.mut().bytes(), y.size_bytes());
      add(gpu, from(a, skip), from(b, skip), from(y, skip));
      scale(gpu, 0.5, from(y, skip));
      scale_by(gpu, 0.5, factor, from(y, skip));
      axpy(gpu, -2.0, from(b, skip), from(y, skip));

      const auto left = random_tensor<T>(cpu, {count}, 1);
      const auto right = random_tensor<T>(cpu, {count}, 2);
      auto expected = Tensor<Cpu>::zeros(cpu, dtype_of<T>(), {count});
      const auto part = [&](View<Cpu> view) { return view.slice(skip, count); };
      add(cpu, left.view().slice(skip, count), right.view().slice(skip, count),
          part(expected.mut()));
      scale(cpu, 0.5, part(expected.mut()));
      scale(cpu, 1.5, part(expected.mut()));
      axpy(cpu, -2.0, right.view().slice(skip, count), part(expected.mut()));
      CHECK(distance(widened(gpu, y), widened(expected)) <= tolerance<T> * 8);
    }
}

TEST_CASE("sums and casts of mixed types are rounded once") {
  Gpu gpu;
  Cpu cpu;
  const std::int64_t count = 37;
  const auto a = random_on<float>(gpu, {count}, 1);
  const auto b = random_on<bf16>(gpu, {count}, 2);
  Tensor<Gpu> y(gpu, DType::f16, {count});
  add(gpu, a, b, y.mut());
  Tensor<Cpu> expected(cpu, DType::f16, {count});
  add(cpu, random_tensor<float>(cpu, {count}, 1), random_tensor<bf16>(cpu, {count}, 2),
      expected.mut());
  CHECK(widened(gpu, y) == widened(expected));

  Tensor<Gpu> narrow(gpu, DType::bf16, {count});
  cast(gpu, a, narrow.mut());
  CHECK(widened(gpu, narrow) == widened(random_tensor<bf16>(cpu, {count}, 1)));
}

TEST_CASE_TEMPLATE("fill and rsqrt", T, double, float) {
  Gpu gpu;
  Tensor<Gpu> x(gpu, dtype_of<T>(), {13});
  fill(gpu, x.mut(), 0.25 - 1e-3);
  Tensor<Gpu> y(gpu, dtype_of<T>(), {13});
  rsqrt(gpu, x, 1e-3, y.mut());
  CHECK(distance(widened(gpu, y), std::vector<double>(13, 2.0)) < tolerance<T>);
}
