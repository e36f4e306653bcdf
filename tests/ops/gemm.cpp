// gemm against three nested loops in double: every type, transposition and awkward sizes.
#include <dhp/cpu/gemm.hpp>
#include <dhp/cpu/rows.hpp>
#include <tests/support/tensors.hpp>

namespace {

struct Case {
  std::int64_t m, n, k;
};
const Case cases[] = {{1, 1, 1},    {0, 3, 4},     {3, 0, 4},     {3, 4, 0},     {5, 1, 7},
                      {1, 33, 5},   {14, 32, 16},  {15, 31, 17},  {29, 67, 257}, {13, 70, 300},
                      {450, 9, 20}, {20, 520, 33}, {461, 530, 3}, {7, 10, 513},  {30, 70, 519}};

template <class T>
double unit_error() {
  if constexpr (std::is_same_v<T, double>) return 2e-15;
  else if constexpr (std::is_same_v<T, float>) return 1e-6;
  else if constexpr (std::is_same_v<T, bf16>) return 0.004;
  else return 0.0005;
}

// Checks gemm, with c (and bias) of type C, against its definition.
template <class T, class C>
void check_against_loops(Cpu& dev, Case size, GemmOptions options, bool with_bias) {
  const auto [m, n, k] = size;
  const auto a = random_tensor<T>(dev, options.transpose_a ? Shape{k, m} : Shape{m, k}, 1);
  const auto b = random_tensor<T>(dev, options.transpose_b ? Shape{n, k} : Shape{k, n}, 2);
  auto c = random_tensor<C>(dev, {m, n}, 3);
  const auto bias = random_tensor<C>(dev, {n}, 4);
  auto expected = widened(c);
  const auto left = widened(a);
  const auto right = widened(b);
  const auto add = widened(bias);
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (std::int64_t p = 0; p < k; ++p)
        sum += left[static_cast<std::size_t>(options.transpose_a ? p * m + i : i * k + p)] *
               right[static_cast<std::size_t>(options.transpose_b ? j * k + p : p * n + j)];
      double& out = expected[static_cast<std::size_t>(i * n + j)];
      out = options.alpha * sum + options.beta * out;
      if (with_bias) out += add[static_cast<std::size_t>(j)];
    }
  }
  if (options.beta == 0)  // beta 0: c must not be read
    std::fill_n(c.mut().template data<C>(), c.count(), static_cast<C>(NAN));
  gemm(dev, a, b, c.mut(), options, with_bias ? bias.view() : ConstView<Cpu>());
  const double scale = 4 * (std::sqrt(static_cast<double>(k)) + 2);
  INFO("m ", m, " n ", n, " k ", k, " options.transpose_a ", options.transpose_a);
  INFO("options.transpose_b ", options.transpose_b, " options.beta ", options.beta);
  CAPTURE(with_bias);
  CHECK(distance(widened(c), expected, scale) <= unit_error<C>());
}

}  // namespace

TEST_CASE_TEMPLATE("gemm agrees with its definition", T, double, float, bf16, f16) {
  using A = Accumulator<T>;
  Cpu dev;
  for (const auto& size : cases) {
    for (int form = 0; form < 4; ++form) {
      const GemmOptions plain{.transpose_a = (form & 1) != 0, .transpose_b = (form & 2) != 0};
      GemmOptions scaled = plain;
      scaled.alpha = 0.5;
      scaled.beta = -1.5;
      check_against_loops<T, T>(dev, size, plain, false);
      check_against_loops<T, T>(dev, size, scaled, true);
      check_against_loops<T, A>(dev, size, plain, true);
      check_against_loops<T, A>(dev, size, scaled, false);
    }
  }
}

TEST_CASE_TEMPLATE("gemm ignores the padding of a and leaves that of c alone", T, double, float,
                   bf16, f16) {
  constexpr std::int64_t m = 45, n = 37, k = 29, more = 3;
  Cpu dev;
  for (int form = 0; form < 4; ++form) {
    GemmOptions options{
        .transpose_a = (form & 1) != 0, .transpose_b = (form & 2) != 0, .beta = 0.5};
    const Shape of_a = options.transpose_a ? Shape{k, m} : Shape{m, k};
    const auto a = random_tensor<T>(dev, of_a, 1),
               b = random_tensor<T>(dev, options.transpose_b ? Shape{n, k} : Shape{k, n}, 2);
    auto c = random_tensor<T>(dev, {m, n}, 3);
    Tensor<Cpu> padded_a(dev, dtype_of<T>(), {of_a[0], of_a[1] + more}),
        padded_c(dev, dtype_of<T>(), {m, n + more});
    for (auto* tensor : {&padded_a, &padded_c})
      std::fill_n(tensor->mut().template data<T>(), tensor->count(), static_cast<T>(NAN));
    copy_columns(dev, a, 0, padded_a.mut(), 0, of_a[1]);
    copy_columns(dev, c, 0, padded_c.mut(), 0, n);
    gemm(dev, a, b, c.mut(), options);
    options.padded = true;
    gemm(dev, padded_a, b, padded_c.mut(), options);
    const auto right = widened(c), got = widened(padded_c);
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n + more; ++j) {
        const auto value = got[static_cast<std::size_t>(i * (n + more) + j)];
        if (j < n) CHECK(value == right[static_cast<std::size_t>(i * n + j)]);
        else CHECK(std::isnan(value));
      }
  }
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
  detail::cpu::serial_gemm(true, true, 500, 600, 80, 2, a.view().data<float>(),
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
  Cpu pairs, floats({.bf16_pairs = false});
  CHECK(pairs.bf16_pairs() > floats.bf16_pairs());
  for (const auto& [m, n, k] : cases)
    for (int form = 0; form < 4; ++form) {
      const GemmOptions options{.transpose_a = (form & 1) != 0,
                                .transpose_b = (form & 2) != 0,
                                .alpha = 0.7,
                                .beta = -1.3};
      const auto run = [&, rows = m, columns = n, deep = k]<class C>(Cpu& dev, TypeTag<C>) {
        const auto a = random_tensor<bf16>(
            dev, options.transpose_a ? Shape{deep, rows} : Shape{rows, deep}, 1);
        const auto b = random_tensor<bf16>(
            dev, options.transpose_b ? Shape{columns, deep} : Shape{deep, columns}, 2);
        auto c = random_tensor<C>(dev, {rows, columns}, 3);
        gemm(dev, a, b, c.mut(), options, random_tensor<C>(dev, {columns}, 4));
        return widened(c);
      };
      INFO("m ", m, " n ", n, " k ", k, " form ", form);
      CHECK(run(pairs, TypeTag<float>{}) == run(floats, TypeTag<float>{}));
      CHECK(run(pairs, TypeTag<bf16>{}) == run(floats, TypeTag<bf16>{}));
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
  const Tensor<Cpu> half(dev, DType::bf16, {4, 6});
  CHECK_THROWS_AS(gemm(dev, a, half, c.mut()), Error);
  Tensor<Cpu> narrow(dev, DType::bf16, {3, 6});
  CHECK_THROWS_AS(gemm(dev, a, good, narrow.mut()), Error);
  CHECK_THROWS_AS(gemm(dev, a, good, c.mut(), {}, a), Error);
  const Tensor<Cpu> cube(dev, DType::f32, {1, 3, 4});
  CHECK_THROWS_AS(gemm(dev, cube, good, c.mut()), Error);
  const Tensor<Cpu> integers(dev, DType::i32, {3, 4});
  CHECK_THROWS_AS(gemm(dev, integers, integers, c.mut(), {.transpose_b = true}), Error);
}
