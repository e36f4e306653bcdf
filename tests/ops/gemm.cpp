// gemm against three nested loops in double: every type, transposition and awkward sizes.
#include <dhp/cpu/gemm.hpp>
#include <dhp/cpu/rows.hpp>
#include <tests/ops/gemm.hpp>

#include <cmath>
#include <utility>

namespace {

const GemmCase sizes[] = {{1, 1, 1},     {0, 3, 4},     {3, 0, 4},     {3, 4, 0},
                          {5, 1, 7},     {1, 33, 5},    {14, 32, 16},  {15, 31, 17},
                          {29, 67, 257}, {13, 70, 300}, {450, 9, 20},  {20, 520, 33},
                          {461, 530, 3}, {7, 10, 513},  {30, 70, 519}, {67, 70, 1031}};

/// Calls body(case) for each size and transposition, with and without scales, bias and a wide c; and with padding.
void for_cases(const auto& body) {
  for (int form = 0; form < 4; ++form) {
    GemmOptions plain{.transpose_a = (form & 1) != 0, .transpose_b = (form & 2) != 0};
    auto scaled = plain;
    scaled.alpha = 0.5;
    scaled.beta = -1.5;
    for (auto each : sizes)
      for (const bool scales : {false, true})
        for (const bool wide_c : {false, true}) {
          each.options = scales ? scaled : plain;
          each.wide_c = wide_c;
          each.bias = scales == wide_c ? GemmCase::none : wide_c ? GemmCase::wide : GemmCase::of_t;
          body(each);
        }
    scaled.padded = true;
    body(GemmCase{45, 37, 29, scaled});
  }
}

/// Computes c by three nested loops.
std::vector<double> by_loops(const GemmCase& each) {
  Side<double, Cpu> side;
  const auto a = widened(side.elements(each.a(), 1)), b = widened(side.elements(each.b(), 2)),
             bias = widened(side.elements({each.n}, 4));
  auto c = widened(side.elements(each.c(), 3));
  const auto at = [](const Shape& shape, bool transposed, std::int64_t row, std::int64_t column) {
    if (transposed) std::swap(row, column);
    return static_cast<std::size_t>(row * shape[1] + column);
  };
  for (std::int64_t i = 0; i < each.m; ++i)
    for (std::int64_t j = 0; j < each.n; ++j) {
      double sum = 0;
      for (std::int64_t p = 0; p < each.k; ++p)
        sum += a[at(each.a(), each.options.transpose_a, i, p)] *
               b[at(each.b(), each.options.transpose_b, p, j)];
      auto& to = c[at(each.c(), false, i, j)];
      to = each.options.alpha * sum + each.options.beta * to;
      if (each.bias != GemmCase::none) to += bias[static_cast<std::size_t>(j)];
    }
  return c;
}

}  // namespace

TEST_CASE("gemm agrees with its definition") {
  Side<double, Cpu> side;
  for_cases([&](const GemmCase& each) {
    INFO("m ", each.m, " n ", each.n, " k ", each.k);
    CHECK(relative_error(gemm_results(side, each)[0], by_loops(each)) <= 1e-14);
  });
}

TEST_CASE_TEMPLATE("gemm is rounded to each type", T, float, bf16, f16) {
  for_cases([&](const GemmCase& each) { check_gemm<T, Cpu>(each); });
}

TEST_CASE("gemm propagates NaN of a") {
  Cpu dev;
  auto a = random_tensor<float>(dev, {3, 5}, 1);
  const auto b = random_tensor<float>(dev, {5, 40}, 2);
  a.mut().data<float>()[7] = std::numeric_limits<float>::quiet_NaN();  // row 1
  Tensor<Cpu> c(dev, DType::f32, {3, 40});
  gemm(dev, a, b, c.mut());
  const auto values = widened(c);
  for (std::size_t i = 0; i < 120; ++i) CHECK(std::isnan(values[i]) == (i / 40 == 1));
}

TEST_CASE_TEMPLATE("gemm has the same bits for any number of threads", T, double, float, bf16) {
  CHECK(same_on_threads([](Cpu& dev) {
    Tensor<Cpu> c(dev, dtype_of<T>(), {1000, 1100}), dw(dev, dtype_of<T>(), {40, 150});
    gemm(dev, random_tensor<T>(dev, {1000, 700}, 1), random_tensor<T>(dev, {700, 1100}, 2),
         c.mut());  // threads split the rows of c and the columns of dw
    gemm(dev, random_tensor<T>(dev, {9001, 40}, 3), random_tensor<T>(dev, {9001, 150}, 4), dw.mut(),
         {.transpose_a = true});
    return std::pair{widened(c), widened(dw)};
  }));
}

TEST_CASE("serial_gemm has the bits of gemm") {
  Cpu dev({.threads = 2});
  const auto a = random_tensor<float>(dev, {80, 500}, 1),
             b = random_tensor<float>(dev, {600, 80}, 2);
  auto c = random_tensor<float>(dev, {500, 600}, 3), d = clone<Cpu>(dev, c);
  gemm(dev, a, b, c.mut(), {true, true, 2, 0.5});
  detail::cpu::serial_gemm<float>(true, true, 500, 600, 80, 2, a.view().data<float>(),
                                  b.view().data<float>(), 0.5, d.mut().data<float>());
  CHECK(widened(c) == widened(d));
}

// Built for AVX2 and run on AVX-512, this compares two kernels. Elsewhere it compares a kernel with itself.
TEST_CASE_TEMPLATE("gemm has the same bits for any width of vectors", T, double, float) {
  Cpu dev;
  const std::int64_t m = 61, n = 77, k = 530;
  const auto a = random_tensor<T>(dev, {m, k}, 1);
  const auto b = random_tensor<T>(dev, {n, k}, 2);
  const auto c = random_tensor<T>(dev, {m, n}, 3);
  const auto bias = random_tensor<T>(dev, {n}, 4);
  const auto multiply = [&](auto registers) {
    Tensor<Cpu> out = clone<Cpu>(dev, c);
    const auto place = [=](std::int64_t row) { return row * n; };
    detail::cpu::Blocks<T>::multiply(
        registers, detail::cpu::MatrixSource<T, T>{a.view().template data<T>(), k, true},
        detail::cpu::MatrixSource<T, T>{b.view().template data<T>(), k, true}, {0, m, 0, n}, k,
        {out.mut().template data<T>(), place, T(0.7), T(-1.3), bias.view().template data<T>()});
    return widened(out);
  };
  std::vector<double> widest;
  detail::cpu::with_widest_registers([&](auto registers) { widest = multiply(registers); });
  CHECK(widest == multiply(detail::cpu::Native{}));
}

// On a machine with AVX512_BF16, this compares products of pairs with products of floats.
TEST_CASE("gemm has the same bits with and without bf16 pairs") {
  Side<bf16, Cpu> pairs{Cpu({.bf16_products = Bf16Products::pairs})},
      floats{Cpu({.bf16_products = Bf16Products::floats})};
  CHECK(pairs.dev.bf16_products() != floats.dev.bf16_products());
  for_cases([&](const GemmCase& each) {
    INFO("m ", each.m, " n ", each.n, " k ", each.k);
    CHECK(gemm_results(pairs, each) == gemm_results(floats, each));
  });
}

// Without AMX, products of floats would be tested.
TEST_CASE("gemm adds the products of bf16 tiles in the documented order" *
          doctest::skip(!detail::has_tiles())) {
  Side<bf16, Cpu> side{Cpu({.bf16_products = Bf16Products::tiles})};
  for (auto each : sizes)
    for (const bool wide : {false, true}) {
      each.options.transpose_b = each.wide_c = wide;
      const auto a = widened(side.elements(each.a(), 1)), b = widened(side.elements(each.b(), 2));
      const auto product = [&](std::int64_t i, std::int64_t j, std::int64_t p, float sum) {
        const auto left = a[detail::as_size(i * each.k + p)];
        const auto right = b[detail::as_size(wide ? j * each.k + p : p * each.n + j)];
        return std::fma(static_cast<float>(left), static_cast<float>(right), sum);
      };
      std::vector<double> expected;
      for (std::int64_t i = 0; i < each.m; ++i)
        for (std::int64_t j = 0; j < each.n; ++j) {
          float sum = 0, of_block = 0;
          for (std::int64_t p = 0; p < each.k; p += 32) {
            float even = 0, odd = 0;
            for (auto at = p; at < std::min(p + 32, each.k); ++at)
              (at % 2 == 0 ? even : odd) = product(i, j, at, at % 2 == 0 ? even : odd);
            of_block += even + odd;
            if ((p + 32) % 512 != 0 && p + 32 < each.k) continue;
            sum += std::exchange(of_block, 0.0f);
          }
          expected.push_back(wide ? sum : static_cast<float>(bf16(sum)));
        }
      INFO("m ", each.m, " n ", each.n, " k ", each.k, " wide ", wide);
      CHECK(gemm_results(side, each)[0] == expected);
    }
}

TEST_CASE("gemm refuses operands that do not fit") {
  Cpu dev;
  const Tensor<Cpu> a(dev, DType::f32, {3, 4});
  const Tensor<Cpu> b(dev, DType::f32, {5, 6});
  Tensor<Cpu> c(dev, DType::f32, {3, 6});
  CHECK(message_of([&] { gemm(dev, a, b, c.mut()); }) ==
        "gemm: op(a) has 4 columns but op(b) has 5 rows (a [3, 4], b [5, 6])");
  const Tensor<Cpu> good(dev, DType::f32, {4, 6});
  Tensor<Cpu> wrong(dev, DType::f32, {6, 3});
  CHECK(message_of([&] { gemm(dev, a, good, wrong.mut()); }) ==
        "gemm: op(a) op(b) is [3, 6] but c is [6, 3]");
  const Tensor<Cpu> cube(dev, DType::f32, {1, 3, 4});
  CHECK_THROWS_AS(gemm(dev, cube, good, c.mut()), Error);
  const Tensor<Cpu> integers(dev, DType::i32, {3, 4});
  CHECK_THROWS_AS(gemm(dev, integers, integers, c.mut(), {.transpose_b = true}), Error);
}
