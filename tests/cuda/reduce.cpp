// Reductions: sizes around packs, tiles and blocks; unaligned addresses; no rows at all.
#include <dhp/cpu/elementwise.hpp>
#include <dhp/cpu/reduce.hpp>
#include <dhp/cuda/elementwise.hpp>
#include <dhp/cuda/reduce.hpp>
#include <tests/cuda/gpu.hpp>
#include <tests/ops/reduce.hpp>

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
    check_column_sums<T, Gpu>({.shape = shape});
  for (const auto& shape : {Shape{33, 16}, {0, 16}})
    check_column_sums<T, Gpu>({.shape = shape, .beta = 0});
  check_column_sums<T, Gpu>({.shape = {100, 8}, .beta = 0, .skip = 1});
  for (const std::int64_t padding : {3, 8, 2})
    check_column_sums<T, Gpu>({.shape = {37, 18}, .padding = padding});
}

TEST_CASE("column sums agree for many short rows and for few long ones") {
  check_column_sums<float, Gpu>({.shape = {9000, 3}, .beta = 0});
  check_column_sums<bf16, Gpu>({.shape = {2, 30522}, .beta = 0});
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
  for (const std::int64_t count : {1, 9, 255, 9011})
    for (const std::int64_t skip : {0, 1}) check_totals<T, Gpu>(count, skip);
  check_totals<T, Gpu>(0);
}

TEST_CASE("a sum has the same bits every time, and the precision of double") {
  Side<float, Gpu> side;
  std::vector<double> values(20000, 1);
  values[3] = 0x1p40;
  const auto x = side.exactly({20000}, values);
  for (int turn = 0; turn < 3; ++turn) {
    auto out = side.tensor({1}, std::vector<double>{0});
    sum(side.dev, x, out.mut());
    CHECK(side.values(out.view())[0] == 0x1p40 + 19999);
  }
}

TEST_CASE_TEMPLATE("count_nonfinite finds a single element at any address", T, double, float, bf16,
                   f16) {
  for (const std::int64_t skip : {0, 1}) check_count_nonfinite<T, Gpu>(1003, skip);
}
