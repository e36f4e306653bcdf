// Layer normalization, alone and after residual + dropout: rows for a warp or for a block, aligned and unaligned.
#include <dhp/cpu/elementwise.hpp>
#include <dhp/cpu/layer_norm.hpp>
#include <dhp/cuda/elementwise.hpp>
#include <dhp/cuda/layer_norm.hpp>
#include <tests/cuda/gpu.hpp>
#include <tests/ops/layer_norm.hpp>

namespace {

/// Returns shapes of rows in a warp's registers, and of long and odd rows, which a block shares.
template <class T>
std::vector<Shape> shapes() {
  constexpr std::int64_t n = detail::cuda::pack_size<Accumulator<T>>;
  return {{3, n},       {19, 31 * n}, {3, 64 * n}, {3, 97 * n}, {3, 192 * n}, {3, 256 * n},
          {2, 257 * n}, {2, 3, 1},    {5, 3},      {3, 33},     {2, 1001}};
}

}  // namespace

TEST_CASE_TEMPLATE("layer norm and RMS norm: rows of every kind agree with the Cpu", T, double,
                   float, bf16, f16) {
  for (const bool rms : {false, true}) {
    for (const auto& shape : shapes<T>())
      check_norm<T, Gpu>({.shape = shape, .in_place = shape[0] == 3, .rms = rms});
    check_norm<T, Gpu>({.shape = {1, 2800}, .rms = rms});
    for (const bool in_place : {false, true})  // at unaligned addresses
      check_norm<T, Gpu>({.shape = {3, 64}, .skip = 1, .in_place = in_place, .rms = rms});
  }
}

TEST_CASE_TEMPLATE("residual layer norm: rows of every kind agree with the Cpu", T, double, float,
                   bf16, f16) {
  using enum ResidualCase::Over;
  for (const auto& shape : shapes<T>())
    check_residual<T, Gpu>({.shape = shape,
                            .over = shape[0] == 3   ? x
                                    : shape[0] == 2 ? y
                                                    : nothing,
                            .numbered = shape[0] == 19 || shape.back() == 3});
  for (const auto over : {nothing, x, y})
    check_residual<T, Gpu>({.shape = {3, 64}, .skip = 1, .over = over});
  for (const std::int64_t columns : {64, 33})
    check_residual<T, Gpu>({.shape = {3, columns}, .p = 0, .over = y});
}

TEST_CASE("layer norm: works for no rows, and for more than the grid has warps or blocks") {
  for (const auto& shape : {Shape{0, 8}, {132 * 16 * 4 + 5, 4}}) {
    check_norm<float, Gpu>({.shape = shape});
    check_residual<float, Gpu>({.shape = shape});
  }
  check_norm<float, Gpu>({.shape = {0, 8}, .rms = true});
  check_norm<float, Gpu>({.shape = {132 * 16 + 5, 3}});  // 3 columns: one block per row
}

TEST_CASE("residual layer norm: the step is read on the device") {
  Side<float, Gpu> side;
  const auto step = side.tensor({1}, std::vector<std::int32_t>{7});
  const auto* at = reinterpret_cast<const std::uint32_t*>(step.view().bytes());
  for (const std::int64_t columns : {64, 1200, 33}) {
    const auto run = [&](RandomStream random) {
      const ResidualCase each{.shape = {3, columns}, .p = 0.5, .random = random};
      return residual_results(side, each);
    };
    CHECK(run({.series_at = at}) == run({.series = 7}));
  }
}

TEST_CASE("layer norm: a large mean loses no digits") { check_digits_of_large_means<Gpu>(); }
