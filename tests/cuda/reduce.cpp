// Reductions: sizes around packs, tiles and blocks; unaligned addresses; no rows at all.
#include <dhp/cpu/reduce.hpp>
#include <dhp/cuda/reduce.hpp>
#include <tests/cuda/gpu.hpp>

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

template <class T>
void check_column_sums(const Shape& shape, double beta, std::int64_t skip = 0,
                       std::int64_t padding = 0) {
  using A = Accumulator<T>;
  CAPTURE(to_text(shape));
  const auto [got, reference] = with_oracle<T>([&](auto& side) -> Results {
    const Shape columns{shape.back() - padding};
    // With beta 0, the old values (NaN) are not read.
    auto sums = beta == 0 ? side.fresh_sums(columns) : side.sums(columns, 2);
    const auto all = side.elements({shape.count() + skip}, 1);
    column_sums(side.dev, all.view().slice(skip, all.count()).as(shape), sums.mut(), beta,
                padding > 0);
    return side.results(sums);
  });
  // The terms are near 1, and their sum may cancel.
  const double size = std::sqrt(static_cast<double>(shape.rows())) + 1;
  CHECK(distance(got[0], reference[0], size) <= tolerance<A>);
}

double on_gpu(Gpu& gpu, ConstView<Gpu> x, const auto& op) {
  Tensor<Gpu> out(gpu, DType::f64, {1});
  op(gpu, x, out.mut());
  return widened(gpu, out)[0];
}
constexpr auto total_of = [](Gpu& gpu, auto x, auto out) { sum(gpu, x, out); };

}  // namespace

TEST_CASE_TEMPLATE("column sums agree with the Cpu, from one element to many tiles", T, double,
                   float, bf16, f16) {
  for (const auto& shape : {Shape{1, 1},
                            {0, 5},
                            {1, 8},
                            {700, 1},
                            {3, 2},
                            {37, 3},
                            {5, 7, 24},
                            {2, 522},
                            {259, 64},
                            {2100, 8},
                            {9, 257}})
    check_column_sums<T>(shape, 0.5);
  check_column_sums<T>({33, 16}, 0);
  check_column_sums<T>({0, 16}, 0);
  check_column_sums<T>({100, 8}, 0, 1);
  for (const std::int64_t padding : {3, 8, 2}) check_column_sums<T>({37, 18}, 0.5, 0, padding);
}

TEST_CASE("column sums agree for many short rows and for few long ones") {
  check_column_sums<float>({9000, 3}, 0);
  check_column_sums<bf16>({2, 30522}, 0);
}

TEST_CASE("column sums: tiles cover any matrix within the GPU's limits") {
  for (const std::int64_t rows : {1, 2, 31, 33, 12544, 3211264})
    for (const std::int64_t columns : {1, 3, 64, 255, 264, 768, 2048, 30522, 1 << 20})
      for (const int width : {1, 2, 8}) {
        if (columns % width != 0) continue;
        INFO("rows ", rows, " columns ", columns, " width ", width);
        const auto tiles = detail::cuda::column_tiles(rows, columns, width);
        CHECK(tiles.across * tiles.down <= tiles.threads);
        CHECK(tiles.across * tiles.down > tiles.threads / 2);
        CHECK(tiles.tiles_across * tiles.across * width >= columns);
        CHECK((tiles.tiles_across - 1) * tiles.across * width < columns);
        CHECK(tiles.tiles_down * tiles.tile_rows >= rows);
        CHECK((tiles.tiles_down - 1) * tiles.tile_rows < rows);
        CHECK(tiles.tiles_down * tiles.tiles_across <= std::max(1056L, tiles.tiles_across));
        const auto second = detail::cuda::one_tile_down(tiles.tiles_down, columns);
        CHECK(second.across * second.down == second.threads);
        CHECK(second.tiles_across * second.across >= columns);
      }
}

TEST_CASE_TEMPLATE("sum, sum of squares and sum of magnitudes are accumulated in double", T, double,
                   float, bf16, f16) {
  Gpu gpu;
  Cpu cpu;
  for (const std::int64_t count : {0, 1, 9, 255, 9011})
    for (const std::int64_t skip : {0, 1}) {
      if (skip > count) continue;
      INFO("count ", count, " skip ", skip);
      const auto x = random_on<T>(gpu, {count}, 1);
      const auto expected = widened(random_tensor<T>(cpu, {count}, 1));
      double total = 0, squares = 0, magnitudes = 0;
      for (auto at = static_cast<std::size_t>(skip); at < expected.size(); ++at) {
        total += expected[at];
        squares += expected[at] * expected[at];
        magnitudes += std::abs(expected[at]);
      }
      const auto of = [&](const auto& op) { return on_gpu(gpu, x.view().slice(skip, count), op); };
      CHECK(std::abs(of(total_of) - total) <= 1e-13 * (1 + squares));
      CHECK(std::abs(of([](Gpu& dev, auto in, auto out) { sum_of_squares(dev, in, out); }) -
                     squares) <= 1e-13 * squares);
      CHECK(std::abs(
                of([](Gpu& dev, auto in, auto out) { detail::sum_of_magnitudes(dev, in, out); }) -
                magnitudes) <= 1e-13 * magnitudes);
    }
}

TEST_CASE("a sum has the same bits every time, and the precision of double") {
  Gpu gpu;
  std::vector<float> values(20000, 1.0f);
  values[3] = 0x1p40f;
  const auto x = Tensor<Gpu>::from_host(gpu, {20000}, values);
  const double first = on_gpu(gpu, x.view(), total_of);
  CHECK(first == 0x1p40 + 19999);
  for (int turn = 0; turn < 2; ++turn) CHECK(on_gpu(gpu, x.view(), total_of) == first);
}

TEST_CASE_TEMPLATE("count_nonfinite finds a single element", T, double, float, bf16, f16) {
  Gpu gpu;
  Cpu cpu;
  const std::int64_t count = 1003;
  const auto found = [&](double value, std::int64_t at, std::int64_t skip) {
    auto host = random_tensor<T>(cpu, {count}, 1);
    if (at >= 0) host.mut().template data<T>()[at] = static_cast<T>(value);
    const auto x = to_device(gpu, host);
    return on_gpu(gpu, x.view().slice(skip, count),
                  [](Gpu& dev, auto in, auto out) { detail::count_nonfinite(dev, in, out); });
  };
  CHECK(found(0, -1, 0) == 0);
  for (const std::int64_t skip : {0, 1})
    for (const std::int64_t at : {1, 500, 1002}) {
      CAPTURE(at);
      CHECK(found(infinity, at, skip) == 1);
      CHECK(found(-infinity, at, skip) == 1);
      CHECK(found(NAN, at, skip) == 1);
    }
  CHECK(found(NAN, 0, 1) == 0);  // outside the view
}
