#include <dhp/cpu/activation.hpp>
#include <dhp/cpu/elementwise.hpp>
#include <dhp/cuda/activation.hpp>
#include <dhp/cuda/elementwise.hpp>
#include <tests/cuda/gpu.hpp>

namespace {

constexpr Activation kinds[] = {Activation::relu, Activation::gelu, Activation::gelu_tanh,
                                Activation::tanh};

}  // namespace

TEST_CASE_TEMPLATE("activations agree with the Cpu at any address", T, double, float, bf16, f16) {
  for (const auto kind : kinds)
    for (const std::int64_t count : {1, 8, 9, 1003})
      for (const std::int64_t skip : {0, 1}) {
        if (skip >= count) continue;
        INFO("kind ", static_cast<int>(kind), " count ", count, " skip ", skip);
        agrees_with_cpu<T>([&](auto& side) -> Results {
          const auto part = [&](auto view) { return view.slice(skip, count); };
          const auto x = side.elements({count}, 1), dy = side.elements({count}, 2);
          auto y = side.fresh({count}), dx = side.fresh({count});
          activation_forward(side.dev, kind, part(x.view()), part(y.mut()));
          // The saved tensor is random, so it need not be the output of any input.
          activation_backward(side.dev, kind, part(x.view()), part(dy.view()), part(dx.mut()));
          return side.results(part(y.view()), part(dx.view()));
        });
      }
}

TEST_CASE_TEMPLATE("swiglu agrees with the Cpu at any address, also in place", T, double, float,
                   bf16, f16) {
  const Shape shape{1003};
  for (const std::int64_t skip : {0, 1}) {
    CAPTURE(skip);
    const auto [got, expected] = with_oracle<T>([&](auto& side) -> Results {
      const auto part = [&](auto view) { return view.slice(skip, shape[0]); };
      const auto gate = side.elements(shape, 1);
      auto up = side.elements(shape, 2), dy = side.elements(shape, 3);
      auto y = side.fresh(shape), dgate = side.fresh(shape), dup = side.fresh(shape);
      const auto in = part(gate.view()), of_up = part(up.view()), of_y = part(dy.view());
      detail::swiglu_forward(side.dev, in, of_up, part(y.mut()));
      detail::swiglu_backward(side.dev, of_y, in, of_up, part(dgate.mut()), part(dup.mut()));
      detail::swiglu_backward(side.dev, of_y, in, of_up, part(up.mut()), part(dy.mut()));
      return side.results(part(y.view()), part(dgate.view()), part(dup.view()), part(up.view()),
                          part(dy.view()));
    });
    for (std::size_t at = 0; at < 3; ++at)
      CHECK(relative_error(got[at], expected[at]) <= tolerance<T>);
    CHECK(got[3] == got[1]);
    CHECK(got[4] == got[2]);
  }
}

TEST_CASE_TEMPLATE("activations give the same bits in place", T, float, bf16) {
  Gpu gpu;
  for (const auto kind : kinds) {
    auto x = random_on<T>(gpu, {77}, 1), dy = random_on<T>(gpu, {77}, 2);
    Tensor<Gpu> y(gpu, dtype_of<T>(), {77}), dx(gpu, dtype_of<T>(), {77});
    activation_forward(gpu, kind, x, y.mut());
    activation_backward(gpu, kind, x, dy, dx.mut());
    activation_backward(gpu, kind, x, dy, dy.mut());
    activation_forward(gpu, kind, x, x.mut());
    CHECK(widened(gpu, x) == widened(gpu, y));
    CHECK(widened(gpu, dy) == widened(gpu, dx));
  }
}

TEST_CASE_TEMPLATE("activations keep NaN, and the digits of small and large inputs", T, double,
                   float) {
  Sides<T> sides;
  const std::vector<double> special{
      NAN, std::numeric_limits<double>::infinity(), -5, -0.0, 30, -100, 1e-6};
  const Shape shape{7};
  for (const auto kind : kinds) {
    CAPTURE(static_cast<int>(kind));
    const auto [got, expected] = sides([&](auto& side) -> Results {
      auto x = side.fresh(shape), one = side.fresh(shape), y = side.fresh(shape),
           slope = side.fresh(shape);
      const std::vector<T> narrow(special.begin(), special.end());
      cast(side.dev, side.tensor(shape, narrow).view(), x.mut());
      fill(side.dev, one.mut(), 1);
      activation_forward(side.dev, kind, x, y.mut());
      activation_backward(side.dev, kind, x, one, slope.mut());
      return side.results(y, slope);
    });
    CHECK(std::isnan(got[0][0]));
    CHECK(std::isnan(got[1][0]) == (kind != Activation::relu));  // ReLU's gradient at NaN is 0
    for (const std::size_t which : {0, 1})
      for (std::size_t at = 1; at < special.size(); ++at) {
        if (which == 1 && at == 1) continue;  // skips gradients at infinity
        const double a = got[which][at], b = expected[which][at];
        CHECK((a == b || std::abs(a - b) <= 3 * tolerance<T> * std::abs(b)));
      }
  }
}

TEST_CASE("activations launch no kernel for no elements") {
  Gpu gpu;
  Tensor<Gpu> none(gpu, DType::f32, {0, 3});
  for (const auto kind : kinds) {
    activation_forward(gpu, kind, none, none.mut());
    activation_backward(gpu, kind, none, none, none.mut());
  }
}
