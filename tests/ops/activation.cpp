// Activations and their gradients against the standard library's functions in double.
#include <dhp/cpu/activation.hpp>
#include <tests/ops/activation.hpp>

namespace {

constexpr double pi = 3.14159265358979323846;

double value_of(Activation kind, double x) {
  switch (kind) {
    case Activation::relu: return x > 0 ? x : 0;
    case Activation::gelu: return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / pi) * (x + 0.044715 * x * x * x)));
    case Activation::tanh: return std::tanh(x);
  }
  return 0;
}
// Returns the derivative at the saved tensor: at x, but for tanh at y.
double slope_of(Activation kind, double x) {
  switch (kind) {
    case Activation::relu: return x > 0 ? 1 : 0;
    case Activation::gelu:
      return 0.5 * std::erfc(-x / std::sqrt(2.0)) + x * std::exp(-0.5 * x * x) / std::sqrt(2 * pi);
    case Activation::gelu_tanh: {
      const double t = std::tanh(std::sqrt(2 / pi) * (x + 0.044715 * x * x * x));
      return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * std::sqrt(2 / pi) * (1 + 3 * 0.044715 * x * x);
    }
    case Activation::tanh: return 1 - x * x;
  }
  return 0;
}

}  // namespace

TEST_CASE("activations match the definition") {
  Side<double, Cpu> side;
  const std::int64_t count = 259;
  const auto x = numbers_with_tails(count), dy = widened(side.elements({count}, 2)), up = dy,
             above = widened(side.elements({count}, 3));
  for (const auto kind : activations()) {
    std::vector<double> y, dx;
    for (std::size_t at = 0; at < x.size(); ++at) {
      y.push_back(value_of(kind, x[at]));
      dx.push_back(dy[at] * slope_of(kind, x[at]));
    }
    const auto got = activation_results(side, kind, count, 0);
    CHECK(element_error(got[0], y) < 1e-15);
    CHECK(element_error(got[1], dx) < 4e-15);
  }
  std::vector<double> y, dgate, dup;
  for (std::size_t at = 0; at < x.size(); ++at) {
    const double sigmoid = 1 / (1 + std::exp(-x[at]));
    y.push_back(x[at] * sigmoid * up[at]);
    dgate.push_back(above[at] * up[at] * (sigmoid + x[at] * sigmoid * (1 - sigmoid)));
    dup.push_back(above[at] * x[at] * sigmoid);
  }
  check_near(swiglu_results(side, count, 0), {y, dgate, dup}, 1e-15);
}

TEST_CASE_TEMPLATE("activations are rounded to each type, in place too, and threads change no bit",
                   T, double, float, bf16, f16) {
  for (const auto count : {std::int64_t{1}, detail::cpu::elementwise_tile + 5})
    check_activations<T, Cpu>(count);
  check_special_activations<T, Cpu>();
  for (const auto kind : activations())
    has_bits_on_threads<T>([&](auto& side) {
      return activation_results(side, kind, 2 * detail::cpu::elementwise_tile + 5, 0);
    });
}

TEST_CASE("activations: float approximations are accurate over their whole range") {
  const auto worst = [](double from, double to, auto got, auto expected) {
    double largest = 0;
    for (int i = 0; i <= 40000; ++i) {
      const auto x = static_cast<float>(from + (to - from) * i / 40000);
      const double reference = expected(static_cast<double>(x));
      if (reference == 0) continue;
      largest = std::max(largest, std::abs(static_cast<double>(got(x)) / reference - 1));
    }
    return largest;
  };
  const auto exp = [](float x) { return detail::cpu::fast_exp(x); };
  CHECK(worst(-87.2, 88.2, exp, [](double x) { return std::exp(x); }) < 2e-7);
  CHECK(detail::cpu::fast_exp(-88.0f) == 0);
  CHECK(detail::cpu::fast_exp(-std::numeric_limits<float>::infinity()) == 0);
  CHECK(detail::cpu::fast_exp(89.0f) == std::numeric_limits<float>::infinity());
  CHECK(detail::cpu::fast_exp(0.0f) == 1);
  CHECK(std::isnan(detail::cpu::fast_exp(std::numeric_limits<float>::quiet_NaN())));

  const auto tanh = [](float x) { return detail::cpu::fast_tanh(x); };
  CHECK(worst(-12, 12, tanh, [](double x) { return std::tanh(x); }) < 4e-7);

  const auto below = [](float x) { return detail::cpu::gaussian(x).below; };
  const auto normal = [](double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); };
  CHECK(worst(-5, 5, below, normal) < 1e-6);
  CHECK(worst(-13, 13, below, normal) < 1e-5);
  const auto density = [](float x) { return detail::cpu::gaussian(x).density; };
  CHECK(worst(-5, 5, density, [](double x) { return std::exp(-0.5 * x * x) * 0.398942280401433; }) <
        1e-6);
}

TEST_CASE("activations: vectors have the bits of single floats up to the last element") {
  const auto check_same = [](auto f) {
    std::vector<float> x, alone;
    for (int i = 0; i < 1003; ++i) x.push_back(static_cast<float>(i - 500) * 0.19f);
    x[7] = -std::numeric_limits<float>::infinity();
    x[1002] = std::numeric_limits<float>::infinity();
    for (const float value : x) alone.push_back(f(value));
    std::vector<float> together(x.size() + 1, 5);
    detail::cpu::for_vectors(std::ssize(x), together.data(), f, x.data());
    CHECK(together.back() == 5);
    together.pop_back();
    CHECK(together == alone);
  };
  static_assert(detail::cpu::takes_vectors<float, decltype([](auto x) { return x; }), float>());
  check_same([](auto x) { return detail::cpu::fast_exp(x); });
  check_same([](auto x) { return detail::cpu::fast_tanh(x); });
  check_same([](auto x) { return detail::cpu::sigmoid(x); });
  check_same([](auto x) { return detail::cpu::gaussian(x).below; });
  check_same([](auto x) { return detail::cpu::gaussian(x).density; });
}
