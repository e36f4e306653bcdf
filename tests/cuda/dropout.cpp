// Dropout on the GPU: bit for bit what the Cpu makes, since the masks are the same and so is the
// scaling.
#include <dhp/cpu/dropout.hpp>
#include <dhp/cuda/dropout.hpp>
#include <tests/cuda/gpu.hpp>

#include <doctest/doctest.h>

using namespace dhp;
using namespace tests;

namespace {

constexpr RandomStream stream{.seed = 0x123456789abcdefu, .step = 3, .use = 5};

}  // namespace

TEST_CASE_TEMPLATE("the Cpu's bits, however numbers and addresses are aligned", T, double, float,
                   bf16, f16) {
  Gpu gpu;
  Cpu cpu;
  struct Case {
    Shape shape;
    std::int64_t first_column, more_columns, first_row;
  };
  const Case cases[] = {{{1, 1}, 0, 0, 0},      {{50, 7}, 0, 0, 1000003}, {{3, 11, 32}, 0, 0, 5},
                        {{20, 131}, 3, 10, 77}, {{9, 64}, 8, 64, 1},      {{9, 64}, 6, 64, 2},
                        {{9, 64}, 4, 61, 3},    {{2, 4096}, 0, 0, 9}};
  for (const auto& each : cases)
    for (const double p : {0.0, 0.1, 0.5, 1 - 0x1p-24})
      for (const std::int64_t skip : {0, 1}) {
        CAPTURE(to_text(each.shape));
        CAPTURE(p);
        CAPTURE(skip);
        const auto count = each.shape.count();
        const auto columns = each.shape.back();
        const DropoutOptions options{
            .probability = p,
            .random = stream,
            .first_column = each.first_column,
            .total_columns = each.first_column + columns + each.more_columns};
        const auto part = [&](auto view) { return view.slice(skip, skip + count).as(each.shape); };
        const auto x = random_on<T>(gpu, Shape{count + 1}, 1);
        Tensor<Gpu> y(gpu, dtype_of<T>(), Shape{count + 1});
        gpu.fill_zero(y.mut().bytes(), y.size_bytes());
        dropout(gpu, part(x.view()), {.first = each.first_row}, options, part(y.mut()));
        const auto right_x = random_tensor<T>(cpu, Shape{count + 1}, 1);
        auto right = Tensor<Cpu>::zeros(cpu, dtype_of<T>(), Shape{count + 1});
        dropout(cpu, part(right_x.view()), {.first = each.first_row}, options, part(right.mut()));
        CHECK(widened(gpu, y) == widened(right));
      }
}

TEST_CASE_TEMPLATE("rows by number, in place", T, float, bf16) {
  Gpu gpu;
  Cpu cpu;
  const std::vector<std::int64_t> numbers{44, 0, 45, std::int64_t{1} << 40, 45};
  const auto host = Tensor<Cpu>::from_host(cpu, {5}, numbers);
  const auto index = to_gpu(gpu, host);
  for (const std::int64_t columns : {13, 24}) {
    const DropoutOptions options{.probability = 0.3, .random = stream, .total_columns = columns};
    auto x = random_on<T>(gpu, {5, columns}, 1);
    dropout(gpu, x, {.index = index.view()}, options, x.mut());
    auto right = random_tensor<T>(cpu, {5, columns}, 1);
    dropout(cpu, right, {.index = host.view()}, options, right.mut());
    CHECK(widened(gpu, x) == widened(right));
  }
}

TEST_CASE("a step that is read on the device, and infinite elements that are dropped") {
  Gpu gpu;
  Cpu cpu;
  const auto step = to_gpu(gpu, Tensor<Cpu>::from_host(cpu, {1}, std::vector<std::int32_t>{7}));
  auto read = stream;
  read.step_at = reinterpret_cast<const std::uint32_t*>(step.view().bytes());
  auto known = stream;
  known.step = 7;
  for (const std::int64_t columns : {64, 61}) {
    const auto x = Tensor<Cpu>::from_host(
        cpu, {2, columns}, std::vector<float>(static_cast<std::size_t>(2 * columns), HUGE_VALF));
    auto y = to_gpu(gpu, x);
    dropout(gpu, y, {}, {.probability = 0.5, .random = read, .total_columns = columns}, y.mut());
    Tensor<Cpu> right(cpu, DType::f32, x.shape());
    dropout(cpu, x, {}, {.probability = 0.5, .random = known, .total_columns = columns},
            right.mut());
    CHECK(widened(gpu, y) == widened(right));
  }
}

TEST_CASE("nothing to drop") {
  Gpu gpu;
  Tensor<Gpu> none(gpu, DType::f32, {0, 3});
  dropout(gpu, none, {}, {.probability = 0.5, .total_columns = 3}, none.mut());
}
