// Layer normalization against loops in double: large means, odd widths; with residual and dropout, against other ops.
#include <dhp/cpu/elementwise.hpp>
#include <dhp/cpu/layer_norm.hpp>
#include <tests/support/tensors.hpp>

namespace {

struct Results {
  std::vector<double> y, mean, inv_std, dx, dgamma, dbeta;
  bool operator==(const Results&) const = default;
};

template <class T>
Results run(Cpu& dev, const Shape& shape, double epsilon, double beta_of_sums = 0.5) {
  using A = Accumulator<T>;
  const auto x = random_tensor<T>(dev, shape, 1);
  const auto dy = random_tensor<T>(dev, shape, 2);
  const auto gamma = random_tensor<A>(dev, {shape.back()}, 3);
  const auto beta = random_tensor<A>(dev, {shape.back()}, 4);
  Tensor<Cpu> y(dev, dtype_of<T>(), shape), dx(dev, dtype_of<T>(), shape);
  Tensor<Cpu> mean(dev, dtype_of<A>(), {shape.rows()}), inv_std(dev, dtype_of<A>(), {shape.rows()});
  auto dgamma = random_tensor<A>(dev, {shape.back()}, 5);
  auto dbeta = random_tensor<A>(dev, {shape.back()}, 6);
  if (beta_of_sums == 0)  // beta 0: must not be read
    for (auto* sums : {&dgamma, &dbeta}) fill(dev, sums->mut(), NAN);
  layer_norm_forward(dev, x, gamma, beta, epsilon, y.mut(), mean.mut(), inv_std.mut());
  layer_norm_backward(dev, dy, x, gamma, mean, inv_std, dx.mut(), dgamma.mut(), dbeta.mut(),
                      beta_of_sums);
  return {widened(y),  widened(mean),   widened(inv_std),
          widened(dx), widened(dgamma), widened(dbeta)};
}

// Computes the results by plain loops in double, from the rounded inputs.
template <class T>
Results expected(const Shape& shape, double epsilon, double beta_of_sums) {
  using A = Accumulator<T>;
  Cpu dev;
  const auto x = widened(random_tensor<T>(dev, shape, 1));
  const auto dy = widened(random_tensor<T>(dev, shape, 2));
  const auto gamma = widened(random_tensor<A>(dev, {shape.back()}, 3));
  const auto beta = widened(random_tensor<A>(dev, {shape.back()}, 4));
  const auto columns = gamma.size();
  const auto width = static_cast<double>(columns);
  Results out{x,
              {},
              {},
              x,
              widened(random_tensor<A>(dev, {shape.back()}, 5)),
              widened(random_tensor<A>(dev, {shape.back()}, 6))};
  for (auto* sums : {&out.dgamma, &out.dbeta})
    for (auto& value : *sums) value *= beta_of_sums;
  for (std::size_t r = 0; r < x.size() / columns; ++r) {
    double mean = 0, variance = 0;
    for (std::size_t c = 0; c < columns; ++c) mean += x[r * columns + c] / width;
    for (std::size_t c = 0; c < columns; ++c)
      variance += std::pow(x[r * columns + c] - mean, 2) / width;
    const double inv_std = 1 / std::sqrt(variance + epsilon);
    double sum = 0, product = 0;
    for (std::size_t c = 0; c < columns; ++c) {
      const double normal = (x[r * columns + c] - mean) * inv_std;
      out.y[r * columns + c] = normal * gamma[c] + beta[c];
      out.dgamma[c] += dy[r * columns + c] * normal;
      out.dbeta[c] += dy[r * columns + c];
      sum += dy[r * columns + c] * gamma[c] / width;
      product += dy[r * columns + c] * gamma[c] * normal / width;
    }
    for (std::size_t c = 0; c < columns; ++c)
      out.dx[r * columns + c] = inv_std * (dy[r * columns + c] * gamma[c] - sum -
                                           (x[r * columns + c] - mean) * inv_std * product);
    out.mean.push_back(mean);
    out.inv_std.push_back(inv_std);
  }
  return out;
}

// Computes RMS norm: y, inv_rms, dx, dgamma.
template <class T>
std::vector<std::vector<double>> rms_run(Cpu& dev, const Shape& shape, bool in_place) {
  using A = Accumulator<T>;
  const auto x = random_tensor<T>(dev, shape, 1);
  auto dy = random_tensor<T>(dev, shape, 2);
  const auto gamma = random_tensor<A>(dev, {shape.back()}, 3);
  Tensor<Cpu> y(dev, dtype_of<T>(), shape), apart(dev, dtype_of<T>(), shape);
  Tensor<Cpu> inv_rms(dev, dtype_of<A>(), {shape.rows()});
  auto dgamma = random_tensor<A>(dev, {shape.back()}, 5);
  auto& dx = in_place ? dy : apart;
  detail::rms_norm_forward(dev, x, gamma, 1e-2, y.mut(), inv_rms.mut());
  detail::rms_norm_backward(dev, dy, x, gamma, inv_rms, dx.mut(), dgamma.mut(), 0.5);
  return {widened(y), widened(inv_rms), widened(dx), widened(dgamma)};
}

constexpr RandomStream stream{.seed = 0x123456789abcdefu, .series = 3, .use = 5};

/// The inputs and results of a fused pass over residual, dropout and norm. Each result has its own tensor.
struct ResidualCase {
  Cpu dev;
  DType type;
  Shape shape;
  DropoutOptions options;
  detail::RowNumbers<Cpu> rows{.index = {}, .first = 1000003};
  Tensor<Cpu> x, residual, gamma, beta, dy;
  Tensor<Cpu> sum, y, mean, inv_std, dresidual, dx, dgamma, dbeta;

  template <class T>
  ResidualCase(TypeTag<T>, const Shape& of, double p, int threads = 1)
      : dev({.threads = threads}),
        type(dtype_of<T>()),
        shape(of),
        options{.probability = p, .random = stream, .total_columns = of.back()},
        x(random_tensor<T>(dev, of, 1)),
        residual(random_tensor<T>(dev, of, 2)),
        gamma(random_tensor<Accumulator<T>>(dev, {of.back()}, 3)),
        beta(random_tensor<Accumulator<T>>(dev, {of.back()}, 4)),
        dy(random_tensor<T>(dev, of, 5)),
        sum(dev, type, of),
        y(dev, type, of),
        mean(dev, accumulation_type(type), {of.rows()}),
        inv_std(dev, accumulation_type(type), {of.rows()}),
        dresidual(dev, type, of),
        dx(dev, type, of),
        dgamma(dev, accumulation_type(type), {of.back()}),
        dbeta(dev, accumulation_type(type), {of.back()}) {}

  void forward() { forward(sum); }
  void forward(Tensor<Cpu>& to) {
    detail::residual_layer_norm_forward(dev, x, residual, rows, options, gamma, beta, 1e-2,
                                        to.mut(), y.mut(), mean.mut(), inv_std.mut());
  }
  void backward() { backward(dresidual, dx); }
  void backward(Tensor<Cpu>& both, Tensor<Cpu>& through) {
    detail::residual_layer_norm_backward(dev, dy, sum, gamma, mean, inv_std, rows, options,
                                         both.mut(), through.mut(), dgamma.mut(), dbeta.mut(), 0);
  }
  [[nodiscard]] std::vector<std::vector<double>> results() const {
    return {widened(sum),       widened(y),  widened(mean),   widened(inv_std),
            widened(dresidual), widened(dx), widened(dgamma), widened(dbeta)};
  }
};

}  // namespace

TEST_CASE_TEMPLATE("layer norm: all operations match plain loops", T, double, float, bf16, f16) {
  const bool exact = std::is_same_v<T, double>;
  const double sums = exact ? 1e-12 : 1e-4;
  const double elements = exact ? 1e-12 : is_16_bit<T> ? 4e-2 : 1e-5;
  for (const auto& shape : {Shape{0, 4}, {1, 3}, {17, 16}, {2, 9, 33}, {130, 100}}) {
    CAPTURE(to_text(shape));
    Cpu dev({.threads = 2});
    const double beta = shape.rank() == 3 ? 0 : 0.5;
    const Results got = run<T>(dev, shape, 1e-2, beta);
    const Results reference = expected<T>(shape, 1e-2, beta);
    CHECK(distance(got.mean, reference.mean) < sums);
    CHECK(distance(got.inv_std, reference.inv_std) < sums);
    CHECK(distance(got.y, reference.y) < elements);
    CHECK(distance(got.dx, reference.dx) < elements);
    CHECK(distance(got.dgamma, reference.dgamma) < sums);
    CHECK(distance(got.dbeta, reference.dbeta) < sums);
  }
}

TEST_CASE_TEMPLATE("layer norm: threads change no bit", T, double, float, bf16, f16) {
  CHECK(same_on_threads([](Cpu& dev) { return run<T>(dev, {300, 45}, 1e-12); }));
}

TEST_CASE_TEMPLATE("residual layer norm: matches dropout, a sum and a norm", T, double, float, bf16,
                   f16) {
  const double rounding = std::is_same_v<T, double>  ? 1e-13
                          : std::is_same_v<T, float> ? 1e-6
                          : std::is_same_v<T, f16>   ? 1e-2
                                                     : 6e-2;
  for (const auto& shape : {Shape{0, 4}, {1, 3}, {17, 16}, {2, 9, 33}, {40, 131}})
    for (const double p : {0.0, 0.3}) {
      INFO("shape ", to_text(shape), " p ", p);
      ResidualCase one(TypeTag<T>{}, shape, p);
      one.forward();
      one.backward();
      auto& dev = one.dev;
      Tensor<Cpu> dropped(dev, one.type, shape), sum(dev, one.type, shape);
      dropout(dev, one.x, one.rows, one.options, dropped.mut());
      add(dev, dropped, one.residual, sum.mut());
      CHECK(distance(widened(one.sum), widened(sum)) <= rounding);
      // Where x is dropped, the sum is the residual, unchanged.
      const auto got = widened(one.sum), kept = widened(one.residual), mask = widened(dropped);
      for (std::size_t at = 0; at < got.size(); ++at)
        if (mask[at] == 0) CHECK(got[at] == kept[at]);

      // The norm must be that of the rounded sum.
      Tensor<Cpu> y(dev, one.type, shape), mean(dev, one.mean.dtype(), one.mean.shape()),
          inv_std(dev, one.mean.dtype(), one.mean.shape()), dresidual(dev, one.type, shape),
          dx(dev, one.type, shape), dgamma(dev, one.mean.dtype(), {shape.back()}),
          dbeta(dev, one.mean.dtype(), {shape.back()});
      layer_norm_forward(dev, one.sum, one.gamma, one.beta, 1e-2, y.mut(), mean.mut(),
                         inv_std.mut());
      CHECK(distance(widened(one.mean), widened(mean)) <= 1e-6);
      CHECK(distance(widened(one.inv_std), widened(inv_std)) <= 1e-6);
      CHECK(distance(widened(one.y), widened(y)) <= rounding);
      layer_norm_backward(dev, one.dy, one.sum, one.gamma, mean, inv_std, dresidual.mut(),
                          dgamma.mut(), dbeta.mut(), 0);
      CHECK(distance(widened(one.dresidual), widened(dresidual)) <= rounding);
      CHECK(distance(widened(one.dgamma), widened(dgamma)) <= 1e-6);
      CHECK(distance(widened(one.dbeta), widened(dbeta)) <= 1e-6);
      dropout(dev, dresidual, one.rows, one.options, dx.mut());
      CHECK(distance(widened(one.dx), widened(dx), 10) <= rounding);
    }
}

TEST_CASE_TEMPLATE("residual layer norm: threads and in-place use change no bit", T, double, float,
                   bf16, f16) {
  const Shape shape{70, 45};
  ResidualCase reference(TypeTag<T>{}, shape, 0.3);
  reference.forward();
  reference.backward();
  for (const int threads : {2, 3}) {
    ResidualCase one(TypeTag<T>{}, shape, 0.3, threads);
    one.forward();
    one.backward();
    CHECK(one.results() == reference.results());
  }
  for (auto member : {&ResidualCase::x, &ResidualCase::residual, &ResidualCase::y}) {
    ResidualCase over(TypeTag<T>{}, shape, 0.3);
    over.forward(over.*member);
    if (member != &ResidualCase::y) CHECK(widened(over.*member) == widened(reference.sum));
    CHECK(widened(over.y) == widened(reference.y));
    CHECK(widened(over.mean) == widened(reference.mean));
  }
  ResidualCase both(TypeTag<T>{}, shape, 0.3);
  both.forward();
  both.backward(both.dy, both.sum);
  CHECK(widened(both.dy) == widened(reference.dresidual));
  CHECK(widened(both.sum) == widened(reference.dx));
  CHECK(widened(both.dgamma) == widened(reference.dgamma));
  CHECK(widened(both.dbeta) == widened(reference.dbeta));
}

TEST_CASE("residual layer norm: rows are identified by number, and partial rows are refused") {
  const Shape shape{3, 10};
  ResidualCase reference(TypeTag<float>{}, shape, 0.5), one(TypeTag<float>{}, shape, 0.5);
  reference.rows.first = 40;
  reference.forward();
  reference.backward();
  const auto numbers = Tensor<Cpu>::from_host(one.dev, {3}, std::vector<std::int64_t>{40, 41, 42});
  one.rows = {.index = numbers.view()};
  one.forward();
  one.backward();
  CHECK(one.results() == reference.results());
  const auto others = Tensor<Cpu>::from_host(one.dev, {3}, std::vector<std::int64_t>{40, 41, 43});
  one.rows = {.index = others.view()};
  one.forward();
  CHECK(widened(one.sum) != widened(reference.sum));
  one.options.total_columns = 20;
  CHECK(message_of([&] { one.forward(); }) == "layer_norm: rows have only 10 of their 20 columns");
  CHECK(message_of([&] { one.backward(); }) == "layer_norm: rows have only 10 of their 20 columns");
  one.options.total_columns = 9;
  CHECK(message_of([&] { one.forward(); }) == "dropout: columns from 0 of [3, 10] are not among 9");
}

TEST_CASE("residual layer norm: with probability 0 no random number is drawn") {
  ResidualCase one(TypeTag<float>{}, {5, 12}, 0);
  // The step's address is invalid, so drawing a random number would crash.
  one.options.random.series_at = reinterpret_cast<const std::uint32_t*>(std::uintptr_t{64});
  one.forward();
  one.backward();
  Tensor<Cpu> sum(one.dev, DType::f32, one.shape);
  add(one.dev, one.x, one.residual, sum.mut());
  CHECK(widened(one.sum) == widened(sum));
  CHECK(widened(one.dx) == widened(one.dresidual));
}

TEST_CASE("layer norm: a large mean loses no digits") {
  Cpu dev;
  const std::int64_t columns = 64;
  std::vector<float> values;
  for (std::int64_t c = 0; c < columns; ++c)
    values.push_back(4096.0f + (c % 2 == 0 ? 0.5f : -0.5f));
  const auto x = Tensor<Cpu>::from_host(dev, {1, columns}, values);
  const auto gamma = Tensor<Cpu>::from_host(
      dev, {columns}, std::vector<float>(static_cast<std::size_t>(columns), 1));
  const auto beta = Tensor<Cpu>::zeros(dev, DType::f32, {columns});
  Tensor<Cpu> y(dev, DType::f32, {1, columns}), mean(dev, DType::f32, {1}),
      inv_std(dev, DType::f32, {1});
  layer_norm_forward(dev, x, gamma, beta, 0, y.mut(), mean.mut(), inv_std.mut());
  for (std::int64_t c = 0; c < columns; ++c)
    CHECK(widened(y)[static_cast<std::size_t>(c)] == (c % 2 == 0 ? 1 : -1));
}

TEST_CASE_TEMPLATE("RMS norm: matches plain loops", T, double, float, bf16, f16) {
  using A = Accumulator<T>;
  const bool exact = std::is_same_v<T, double>;
  for (const auto& shape : {Shape{0, 4}, {1, 3}, {2, 9, 33}, {130, 100}}) {
    CAPTURE(to_text(shape));
    Cpu dev({.threads = 2});
    const auto x = widened(random_tensor<T>(dev, shape, 1)),
               dy = widened(random_tensor<T>(dev, shape, 2)),
               gamma = widened(random_tensor<A>(dev, {shape.back()}, 3));
    auto y = x, dx = x, dgamma = widened(random_tensor<A>(dev, {shape.back()}, 5));
    std::vector<double> inverses;
    for (auto& value : dgamma) value *= 0.5;
    const auto columns = gamma.size();
    for (std::size_t row = 0; row < x.size(); row += columns) {
      double square = 0, product = 0;
      for (std::size_t c = 0; c < columns; ++c) {
        square += x[row + c] * x[row + c] / static_cast<double>(columns);
        product += dy[row + c] * gamma[c] * x[row + c] / static_cast<double>(columns);
      }
      const double inverse = 1 / std::sqrt(square + 1e-2);
      inverses.push_back(inverse);
      for (std::size_t c = 0; c < columns; ++c) {
        y[row + c] = x[row + c] * inverse * gamma[c];
        dx[row + c] = inverse * (dy[row + c] * gamma[c] - x[row + c] * inverse * inverse * product);
        dgamma[c] += dy[row + c] * x[row + c] * inverse;
      }
    }
    const auto got = rms_run<T>(dev, shape, false);
    const double elements = exact ? 1e-12 : is_16_bit<T> ? 4e-2 : 1e-5;
    CHECK(distance(got[0], y) < elements);
    CHECK(distance(got[1], inverses) < (exact ? 1e-12 : 1e-4));
    CHECK(distance(got[2], dx) < elements);
    CHECK(distance(got[3], dgamma) < (exact ? 1e-12 : 1e-4));
    CHECK(rms_run<T>(dev, shape, true) == got);
  }
  CHECK(same_on_threads([](Cpu& dev) { return rms_run<T>(dev, {130, 100}, false); }));
}

TEST_CASE("layer norm: operands that do not fit are refused") {
  Cpu dev;
  const auto x = random_tensor<float>(dev, {3, 4}, 1);
  const auto four = random_tensor<float>(dev, {4}, 2);
  const auto half = random_tensor<bf16>(dev, {4}, 2);
  auto y = random_tensor<float>(dev, {3, 4}, 2);
  auto mean = random_tensor<float>(dev, {3}, 2);
  auto inv_std = random_tensor<float>(dev, {3}, 2);
  auto sum = random_tensor<float>(dev, {4}, 2);
  const auto other = random_tensor<bf16>(dev, {3, 4}, 2);
  const auto scaled_by = [&](const Tensor<Cpu>& gamma) {
    return message_of(
        [&] { layer_norm_forward(dev, x, gamma, four, 0, y.mut(), mean.mut(), inv_std.mut()); });
  };
  const auto backward = [&](const Tensor<Cpu>& dy, const Tensor<Cpu>& of_rows, Tensor<Cpu>& dgamma,
                            Tensor<Cpu>& dbeta) {
    return message_of([&] {
      layer_norm_backward(dev, dy, x, four, of_rows, inv_std, y.mut(), dgamma.mut(), dbeta.mut(),
                          0);
    });
  };
  const std::string columns = " does not fit the columns of [3, 4] of f32; make it [4] of f32";
  CHECK(scaled_by(mean) == "layer_norm: the scale [3] of f32" + columns);
  CHECK(scaled_by(half) == "layer_norm: the scale [4] of bf16" + columns);
  CHECK(
      backward(y, four, sum, sum) ==
      "layer_norm: the mean [4] of f32 does not fit the rows of [3, 4] of f32; make it [3] of f32");
  CHECK(backward(other, mean, sum, sum) ==
        "layer_norm: dy [3, 4] of bf16 does not fit [3, 4] of f32; make it like that");
  CHECK(backward(y, mean, y, sum) ==
        "layer_norm: the gradient of the scale [3, 4] of f32" + columns);
  CHECK(backward(y, mean, sum, mean) ==
        "layer_norm: the gradient of the shift [3] of f32" + columns);
  CHECK(message_of([&] { detail::rms_norm_forward(dev, x, four, 0, y.mut(), sum.mut()); }) ==
        "rms_norm: the root mean square [4] of f32 does not fit the rows of [3, 4] of f32; make it "
        "[3] of f32");
  CHECK(message_of([&] {
          detail::rms_norm_backward(dev, y, x, four, inv_std, y.mut(), mean.mut(), 0);
        }) == "rms_norm: the gradient of the scale [3] of f32" + columns);
  const DropoutOptions options{.total_columns = 4};
  CHECK(message_of([&] {
          detail::residual_layer_norm_forward(dev, x, other, {}, options, four, four, 0, y.mut(),
                                              y.mut(), mean.mut(), inv_std.mut());
        }) ==
        "layer_norm: the residual [3, 4] of bf16 does not fit [3, 4] of f32; make it like that");
  CHECK(message_of([&] {
          detail::residual_layer_norm_backward(dev, x, x, four, mean, inv_std, {}, options,
                                               sum.mut(), y.mut(), sum.mut(), sum.mut(), 0);
        }) == "layer_norm: dresidual [4] of f32 does not fit [3, 4] of f32; make it like that");
}
