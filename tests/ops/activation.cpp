// Activations and their gradients against the standard library's functions in double.
#include <dhp/cpu/activation.hpp>
#include <tests/support/tensors.hpp>

namespace {

constexpr double pi = 3.14159265358979323846;

const std::vector<Activation> kinds{Activation::relu, Activation::gelu, Activation::gelu_tanh,
                                    Activation::tanh};

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
// Returns the derivative. y: the rounded output, at which tanh's gradient is taken.
double slope_of(Activation kind, double x, double y) {
  switch (kind) {
    case Activation::relu: return x > 0 ? 1 : 0;
    case Activation::gelu:
      return 0.5 * std::erfc(-x / std::sqrt(2.0)) + x * std::exp(-0.5 * x * x) / std::sqrt(2 * pi);
    case Activation::gelu_tanh: {
      const double t = std::tanh(std::sqrt(2 / pi) * (x + 0.044715 * x * x * x));
      return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * std::sqrt(2 / pi) * (1 + 3 * 0.044715 * x * x);
    }
    case Activation::tanh: return 1 - y * y;
  }
  return 0;
}

// The largest error of either pass for results near 1.
template <class T>
constexpr double epsilon() {
  if (std::is_same_v<T, double>) return 1e-15;
  if (std::is_same_v<T, float>) return 1e-6;
  return std::is_same_v<T, bf16> ? 8e-3 : 1e-3;
}

}  // namespace

TEST_CASE_TEMPLATE("activations: forward and backward match the definition, also in place", T,
                   double, float, bf16, f16) {
  for (const int threads : {1, 2, 3}) {
    Cpu dev({.threads = threads});
    for (const std::int64_t size :
         {std::int64_t{0}, std::int64_t{1}, std::int64_t{259}, detail::cpu::elementwise_tile + 5})
      for (const auto kind : kinds) {
        auto x = random_tensor<T>(dev, {size}, 1);
        scale(dev, 3, x.mut());  // reaches the tails
        auto dy = random_tensor<T>(dev, {size}, 2);
        const auto values = widened(x);
        const auto gradients = widened(dy);
        Tensor<Cpu> y(dev, dtype_of<T>(), {size});
        activation_forward(dev, kind, x, y.mut());
        const auto got = widened(y);
        double worst = 0;
        for (std::size_t i = 0; i < got.size(); ++i) {
          const double error = std::abs(got[i] - value_of(kind, values[i]));
          worst = std::max(worst, error / (1 + std::abs(values[i])));
        }
        CHECK(worst < epsilon<T>());

        Tensor<Cpu> dx(dev, dtype_of<T>(), {size});
        const auto& saved = detail::rules_of(kind).saves_output ? y : x;
        activation_backward(dev, kind, saved, dy, dx.mut());
        const auto back = widened(dx);
        worst = 0;
        for (std::size_t i = 0; i < got.size(); ++i) {
          const double error = std::abs(back[i] - gradients[i] * slope_of(kind, values[i], got[i]));
          worst = std::max(worst, error / (1 + std::abs(gradients[i])));
        }
        CHECK(worst < 2 * epsilon<T>());

        activation_backward(dev, kind, saved, dy, dy.mut());
        CHECK(widened(dy) == back);
        activation_forward(dev, kind, x, x.mut());
        CHECK(widened(x) == got);
      }
  }
}

TEST_CASE_TEMPLATE("activations: NaN stays NaN, infinities saturate", T, double, float, bf16, f16) {
  Cpu dev;
  const double infinity = std::numeric_limits<double>::infinity();
  auto x = Tensor<Cpu>(dev, dtype_of<T>(), {3});
  Tensor<Cpu> y(dev, dtype_of<T>(), {3});
  T* values = x.mut().template data<T>();
  values[0] = static_cast<T>(std::numeric_limits<double>::quiet_NaN());
  values[1] = static_cast<T>(infinity);
  values[2] = static_cast<T>(-infinity);
  for (const auto kind : kinds) {
    activation_forward(dev, kind, x, y.mut());
    const auto got = widened(y);
    CHECK(std::isnan(got[0]));
    CHECK(got[1] == (kind == Activation::tanh ? 1 : infinity));
    if (kind == Activation::relu) CHECK(got[2] == 0);
    if (kind == Activation::tanh) CHECK(got[2] == -1);
  }
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

TEST_CASE_TEMPLATE("activations: swiglu matches its formula, also in place", T, double, float, bf16,
                   f16) {
  Cpu dev({.threads = 2});
  const Shape shape{detail::cpu::elementwise_tile + 5};
  auto gate = random_tensor<T>(dev, shape, 1), up = random_tensor<T>(dev, shape, 2),
       dy = random_tensor<T>(dev, shape, 3);
  scale(dev, 3, gate.mut());  // reaches the tails
  Tensor<Cpu> y(dev, dtype_of<T>(), shape), dgate(dev, dtype_of<T>(), shape),
      dup(dev, dtype_of<T>(), shape);
  detail::swiglu_forward(dev, gate, up, y.mut());
  detail::swiglu_backward(dev, dy, gate, up, dgate.mut(), dup.mut());
  const auto g = widened(gate), u = widened(up), d = widened(dy);
  std::vector<double> right_y, right_gate, right_up;
  for (std::size_t i = 0; i < g.size(); ++i) {
    const double sigmoid = 1 / (1 + std::exp(-g[i]));
    right_y.push_back(g[i] * sigmoid * u[i]);
    right_gate.push_back(d[i] * u[i] * (sigmoid + g[i] * sigmoid * (1 - sigmoid)));
    right_up.push_back(d[i] * g[i] * sigmoid);
  }
  CHECK(distance(widened(y), right_y, 10) < 2 * epsilon<T>());
  CHECK(distance(widened(dgate), right_gate, 10) < 2 * epsilon<T>());
  CHECK(distance(widened(dup), right_up, 10) < 2 * epsilon<T>());
  detail::swiglu_backward(dev, dy, gate, up, up.mut(), dy.mut());
  CHECK(widened(up) == widened(dgate));
  CHECK(widened(dy) == widened(dup));
  CHECK(message_of([&] {
          detail::swiglu_forward(dev, gate, random_tensor<T>(dev, {3}, 1), y.mut());
        }) == concat("swiglu: up [3] of ", dtype_of<T>(), " does not fit ", shape, " of ",
                     dtype_of<T>(), "; make it like that"));
}

TEST_CASE("activations: operands that do not fit are refused") {
  Cpu dev;
  const auto x = random_tensor<float>(dev, {3, 4}, 1);
  auto y = random_tensor<bf16>(dev, {3, 4}, 2);
  CHECK(message_of([&] { activation_forward(dev, Activation::relu, x, y.mut()); }) ==
        "activation: y [3, 4] of bf16 does not fit [3, 4] of f32; make it like that");
  CHECK(message_of([&] { activation_backward(dev, Activation::relu, x, y, y.mut()); }) ==
        "activation: dy [3, 4] of bf16 does not fit [3, 4] of f32; make it like that");
}
