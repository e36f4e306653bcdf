// Dropout has the bits of the Cpu's: the same mask, and the same scaling.
#include <dhp/cpu/dropout.hpp>
#include <dhp/cpu/elementwise.hpp>
#include <dhp/cuda/dropout.hpp>
#include <dhp/cuda/elementwise.hpp>
#include <tests/cuda/gpu.hpp>

namespace {

constexpr RandomStream stream{.seed = 0x123456789abcdefu, .series = 3, .use = 5};

}  // namespace

TEST_CASE_TEMPLATE("dropout has the Cpu's bits for any alignment", T, double, float, bf16, f16) {
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
        INFO("each.shape ", to_text(each.shape), " p ", p, " skip ", skip);
        const auto count = each.shape.count();
        const auto columns = each.shape.back();
        const DropoutOptions options{
            .probability = p,
            .random = stream,
            .first_column = each.first_column,
            .total_columns = each.first_column + columns + each.more_columns};
        has_bits_of_cpu<T>([&](auto& side) -> Results {
          const auto part = [&](auto view) {
            return view.slice(skip, skip + count).as(each.shape);
          };
          const auto x = side.elements({count + 1}, 1);
          auto y = side.fresh({count + 1});
          dropout(side.dev, part(x.view()), {.first = each.first_row}, options, part(y.mut()));
          return side.results(part(y.view()));
        });
      }
}

TEST_CASE_TEMPLATE("dropout has the Cpu's bits for numbered rows in place", T, float, bf16) {
  const std::vector<std::int64_t> numbers{44, 0, 45, std::int64_t{1} << 40, 45};
  for (const std::int64_t columns : {13, 24}) {
    has_bits_of_cpu<T>([&](auto& side) -> Results {
      const auto index = side.tensor({5}, numbers);
      auto x = side.elements({5, columns}, 1);
      dropout(side.dev, x, {.index = index.view()},
              {.probability = 0.3, .random = stream, .total_columns = columns}, x.mut());
      return side.results(x);
    });
  }
}

TEST_CASE("dropout reads the step on the device, and drops infinite elements") {
  for (const std::int64_t columns : {64, 61}) {
    has_bits_of_cpu<float>([&](auto& side) -> Results {
      const auto step = side.tensor({1}, std::vector<std::int32_t>{7});
      auto read = stream;
      read.series_at = reinterpret_cast<const std::uint32_t*>(step.view().bytes());
      auto x = side.fresh({2, columns});
      fill(side.dev, x.mut(), HUGE_VAL);
      dropout(side.dev, x, {}, {.probability = 0.5, .random = read, .total_columns = columns},
              x.mut());
      return side.results(x);
    });
  }
}

TEST_CASE("dropout accepts no elements") {
  Gpu gpu;
  Tensor<Gpu> none(gpu, DType::f32, {0, 3});
  dropout(gpu, none, {}, {.probability = 0.5, .total_columns = 3}, none.mut());
}
