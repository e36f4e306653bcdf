// Softmax on the GPU: rows for a warp, for a block, and longer than all threads together.
#include <dhp/cpu/softmax.hpp>
#include <dhp/cuda/softmax.hpp>
#include <tests/cuda/gpu.hpp>

#include <doctest/doctest.h>

#include <limits>

using namespace dhp;
using namespace tests;

namespace {

const Shape shapes[] = {{5, 1},   {9, 2, 7}, {3, 64},   {2, 100},  {3, 257},
                        {2, 600}, {1, 2056}, {1, 5000}, {1, 17000}};

}  // namespace

TEST_CASE_TEMPLATE("softmax and its gradient, rows of any length", T, double, float, bf16, f16) {
  Gpu gpu;
  Cpu cpu;
  for (const auto& shape : shapes) {
    CAPTURE(to_text(shape));
    const auto x = random_on<T>(gpu, shape, 1);
    const auto dy = random_on<T>(gpu, shape, 2);
    Tensor<Gpu> y(gpu, dtype_of<T>(), shape), dx(gpu, dtype_of<T>(), shape);
    softmax_forward(gpu, x, y.mut());
    softmax_backward(gpu, y, dy, dx.mut());

    Tensor<Cpu> right(cpu, DType::f64, shape), right_dx(cpu, DType::f64, shape);
    softmax_forward(cpu, oracle_of<T>(cpu, shape, 1), right.mut());
    CHECK(relative_error(widened(gpu, y), widened(right)) <= tolerance<T>);
    const auto saved = Tensor<Cpu>::from_host(cpu, shape, widened(gpu, y));
    softmax_backward(cpu, saved, oracle_of<T>(cpu, shape, 2), right_dx.mut());
    CHECK(relative_error(widened(gpu, dx), widened(right_dx)) <= tolerance<T>);
  }
}

TEST_CASE_TEMPLATE("softmax in place, at an address that allows no packs", T, float, bf16) {
  Gpu gpu;
  for (const std::int64_t columns : {64, 1024}) {
    const auto part = [&](auto view) { return view.slice(1, 1 + 3 * columns).as({3, columns}); };
    auto x = random_on<T>(gpu, Shape{3 * columns + 1}, 1);
    auto dy = random_on<T>(gpu, Shape{3 * columns + 1}, 2);
    Tensor<Gpu> y(gpu, dtype_of<T>(), {3, columns}), dx(gpu, dtype_of<T>(), {3, columns});
    softmax_forward(gpu, part(x.view()), y.mut());
    softmax_forward(gpu, part(x.view()), part(x.mut()));
    softmax_backward(gpu, y, part(dy.view()), dx.mut());
    softmax_backward(gpu, y, part(dy.view()), part(dy.mut()));
    const auto tail = [&](const Tensor<Gpu>& from) {
      auto values = widened(gpu, from);
      values.erase(values.begin());
      return values;
    };
    CHECK(relative_error(tail(x), widened(gpu, y)) <= tolerance<T>);
    CHECK(relative_error(tail(dy), widened(gpu, dx)) <= tolerance<T>);
  }
}

TEST_CASE_TEMPLATE("large values, masked columns, NaN: as on the Cpu", T, double, float) {
  Gpu gpu;
  Cpu cpu;
  constexpr T infinity = std::numeric_limits<T>::infinity();
  constexpr T nan = std::numeric_limits<T>::quiet_NaN();
  for (const std::int64_t columns : {70, 1200}) {
    const auto wide = static_cast<std::size_t>(columns);
    std::vector<T> values(6 * wide);
    for (std::size_t at = 0; at < values.size(); ++at) values[at] = static_cast<T>(at % 7);
    for (std::size_t c = 0; c < wide; ++c) {
      values[c] += T(3e4);                                  // large
      if (c != 5 && c != 33) values[wide + c] = -infinity;  // all threads but two see a mask
      values[2 * wide + c] = -infinity;
    }
    values[3 * wide + 40] = nan;
    values[4 * wide + 41] = infinity;
    values[5 * wide] = -infinity;
    const auto host = Tensor<Cpu>::from_host(cpu, {6, columns}, values);
    const auto x = to_gpu(gpu, host);
    Tensor<Gpu> y(gpu, dtype_of<T>(), x.shape());
    Tensor<Cpu> right(cpu, dtype_of<T>(), x.shape());
    softmax_forward(gpu, x, y.mut());
    softmax_forward(cpu, host, right.mut());
    const auto got = widened(gpu, y), expected = widened(right);
    std::size_t wrong = 0;
    for (std::size_t at = 0; at < got.size(); ++at)
      wrong += std::isnan(expected[at]) ? !std::isnan(got[at])
                                        : !(std::abs(got[at] - expected[at]) < 1e-6);
    CHECK(wrong == 0);
  }
}

TEST_CASE("more rows than teams, and none") {
  Gpu gpu;
  Cpu cpu;
  const Shape shape{11, 5};
  const auto x = random_on<float>(gpu, shape, 1);
  const float* const from = x.view().data<float>();
  Tensor<Gpu> by_warps(gpu, DType::f32, shape), by_blocks(gpu, DType::f32, shape);
  launch(gpu, {2, 64},
         cuda::SoftmaxForward<float, 1, false>{11, 5, from, by_warps.mut().data<float>()});
  launch(gpu, {3, 64, cuda::block_reduce_scratch * sizeof(float)},
         cuda::SoftmaxForward<float, 1, true>{11, 5, from, by_blocks.mut().data<float>()});
  Tensor<Cpu> right(cpu, DType::f64, shape);
  softmax_forward(cpu, oracle_of<float>(cpu, shape, 1), right.mut());
  CHECK(relative_error(widened(gpu, by_warps), widened(right)) <= tolerance<float>);
  CHECK(relative_error(widened(gpu, by_blocks), widened(right)) <= tolerance<float>);
  Tensor<Gpu> none(gpu, DType::f32, {0, 3}), empty(gpu, DType::f32, {3, 0});
  softmax_forward(gpu, none, none.mut());
  softmax_backward(gpu, empty, empty, empty.mut());
}
