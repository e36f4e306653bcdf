// Batch normalization, with or without a residual and a ReLU, against plain loops in double; sums in parts.
#include <dhp/cpu/batch_norm.hpp>
#include <tests/support/tensors.hpp>

namespace {

constexpr double epsilon = 1e-5;

// Vectors [C] in the accumulation type of T.
struct Statistics {
  Statistics(Cpu& dev, DType type, std::int64_t columns)
      : mean(dev, type, {columns}), inv_std(dev, type, {columns}) {}
  Tensor<Cpu> mean, inv_std;
};

template <class A>
void set(Tensor<Cpu>& vector, const std::vector<double>& values) {
  A* to = vector.mut().template data<A>();
  for (std::size_t i = 0; i < values.size(); ++i) to[i] = static_cast<A>(values[i]);
}

// Computes mean and 1 / sqrt(variance + epsilon) by the ops, like a layer.
template <class A>
Statistics statistics_of(Cpu& dev, const Tensor<Cpu>& x) {
  Statistics result(dev, dtype_of<A>(), x.columns());
  const auto rows = static_cast<double>(x.rows());
  column_sums(dev, x, result.mean.mut(), 0);
  auto values = widened(result.mean);
  for (auto& value : values) value /= rows;
  set<A>(result.mean, values);
  detail::batch_norm_squared_deviations(dev, x, result.mean, result.inv_std.mut());
  values = widened(result.inv_std);
  for (auto& value : values) value = 1 / std::sqrt(value / rows + epsilon);
  set<A>(result.inv_std, values);
  return result;
}

// The steps after the norm.
struct Behind {
  bool relu = false, residual = false;
};
const std::vector<Behind> all_behind{{}, {.relu = true}, {.residual = true}, {true, true}};

struct Results {
  std::vector<double> mean, inv_std, y, sum_dy, sum_dy_xhat, dresidual, dx;
  bool operator==(const Results&) const = default;
};

// Runs the backward pass by the unfused ops, like a layer.
struct Gradients {
  Tensor<Cpu> sum_dy, sum_dy_xhat, dresidual, dx;
};
Gradients gradients_of(Cpu& dev, Behind behind, const Tensor<Cpu>& dy, const Tensor<Cpu>& x,
                       const detail::BatchNormVectors<Cpu>& vectors, const Tensor<Cpu>& y,
                       double count) {
  const auto sum = [&] { return Tensor<Cpu>(dev, vectors.mean.dtype(), {x.columns()}); };
  Gradients result{sum(), sum(), {}, Tensor<Cpu>(dev, x.dtype(), x.shape())};
  if (behind.relu && behind.residual) {
    result.dresidual = Tensor<Cpu>(dev, x.dtype(), x.shape());
    detail::batch_norm_backward_sums(dev, dy, x, vectors, true, result.sum_dy.mut(),
                                     result.sum_dy_xhat.mut(), y, result.dresidual.mut());
  } else {
    result.dresidual = dy.share();
    detail::batch_norm_backward_sums(dev, dy, x, vectors, behind.relu, result.sum_dy.mut(),
                                     result.sum_dy_xhat.mut());
  }
  detail::batch_norm_backward_apply(dev, result.dresidual, x, vectors,
                                    behind.relu && !behind.residual, result.sum_dy,
                                    result.sum_dy_xhat, count, result.dx.mut());
  return result;
}

template <class T>
Results run(Cpu& dev, const Shape& shape, Behind behind) {
  using A = Accumulator<T>;
  const auto x = random_tensor<T>(dev, shape, 1);
  const auto dy = random_tensor<T>(dev, shape, 2);
  const auto gamma = random_tensor<A>(dev, {shape.back()}, 3);
  const auto beta = random_tensor<A>(dev, {shape.back()}, 4);
  const auto residual = behind.residual ? random_tensor<T>(dev, shape, 5) : Tensor<Cpu>();
  const auto statistics = statistics_of<A>(dev, x);
  const detail::BatchNormVectors<Cpu> vectors{statistics.mean, statistics.inv_std, gamma, beta};
  Tensor<Cpu> y(dev, dtype_of<T>(), shape);
  detail::batch_norm_apply(dev, x, vectors, residual.view(), behind.relu, y.mut());
  const auto result = gradients_of(dev, behind, dy, x, vectors, y, static_cast<double>(x.rows()));
  return {widened(statistics.mean), widened(statistics.inv_std), widened(y),
          widened(result.sum_dy),   widened(result.sum_dy_xhat), widened(result.dresidual),
          widened(result.dx)};
}

// Computes the results by plain loops in double, from the rounded inputs. `got` decides which values pass the ReLU,
// because values near 0 may round to either side.
template <class T>
Results expected(const Shape& shape, Behind behind, const Results& got) {
  using A = Accumulator<T>;
  Cpu dev;
  const auto x = widened(random_tensor<T>(dev, shape, 1));
  const auto dy = widened(random_tensor<T>(dev, shape, 2));
  const auto gamma = widened(random_tensor<A>(dev, {shape.back()}, 3));
  const auto beta = widened(random_tensor<A>(dev, {shape.back()}, 4));
  const auto residual = widened(random_tensor<T>(dev, shape, 5));
  const auto columns = gamma.size();
  const auto rows = x.size() / columns;
  const auto count = static_cast<double>(rows);
  const std::vector<double> per_column(columns);
  Results out{per_column, per_column, x, per_column, per_column, dy, x};
  for (std::size_t c = 0; c < columns; ++c) {
    double variance = 0;
    for (std::size_t r = 0; r < rows; ++r) out.mean[c] += x[r * columns + c] / count;
    for (std::size_t r = 0; r < rows; ++r)
      variance += std::pow(x[r * columns + c] - out.mean[c], 2) / count;
    out.inv_std[c] = 1 / std::sqrt(variance + epsilon);
    const auto normal = [&](std::size_t r) {
      return (x[r * columns + c] - out.mean[c]) * out.inv_std[c];
    };
    for (std::size_t r = 0; r < rows; ++r) {
      const auto at = r * columns + c;
      const double y = normal(r) * gamma[c] + beta[c] + (behind.residual ? residual[at] : 0);
      out.y[at] = behind.relu && y < 0 ? 0 : y;
      if (behind.relu && got.y[at] == 0) out.dresidual[at] = 0;
      out.sum_dy[c] += out.dresidual[at];
      out.sum_dy_xhat[c] += out.dresidual[at] * normal(r);
    }
    for (std::size_t r = 0; r < rows; ++r)
      out.dx[r * columns + c] = gamma[c] * out.inv_std[c] *
                                (out.dresidual[r * columns + c] - out.sum_dy[c] / count -
                                 normal(r) * out.sum_dy_xhat[c] / count);
  }
  return out;
}

// Rows are around the tiles of 64 and 128, columns around the vector width and the blocks of 128.
const std::vector<Shape> shapes{{2, 1}, {2, 3, 3, 5}, {129, 8}, {300, 33}, {5, 131}};

}  // namespace

TEST_CASE_TEMPLATE("batch norm: all operations match plain loops", T, double, float, bf16, f16) {
  const bool exact = std::is_same_v<T, double>;
  const double sums = exact ? 1e-12 : 2e-4;
  const double elements = exact ? 1e-12 : is_16_bit<T> ? 3e-2 : 1e-4;
  for (const auto& shape : shapes)
    for (const auto behind : all_behind) {
      INFO("shape ", to_text(shape), " behind.relu ", behind.relu);
      CAPTURE(behind.residual);
      Cpu dev;
      const Results got = run<T>(dev, shape, behind);
      const Results reference = expected<T>(shape, behind, got);
      CHECK(distance(got.mean, reference.mean) < sums);
      // inv_std may be large with two rows.
      double largest = 1;
      for (const double value : reference.inv_std) largest = std::max(largest, value);
      CHECK(distance(got.inv_std, reference.inv_std, largest) < sums);
      CHECK(distance(got.y, reference.y) < elements);
      CHECK(distance(got.sum_dy, reference.sum_dy) < sums);
      CHECK(distance(got.sum_dy_xhat, reference.sum_dy_xhat) < sums);
      CHECK(distance(got.dx, reference.dx, largest) < elements);
      if (behind.relu) CHECK(*std::min_element(got.y.begin(), got.y.end()) >= 0);
      if (behind.relu && behind.residual) CHECK(got.dresidual == reference.dresidual);
    }
}

TEST_CASE_TEMPLATE("batch norm: threads change no bit", T, double, float, bf16, f16) {
  for (const auto behind : all_behind)
    CHECK(same_on_threads([&](Cpu& dev) { return run<T>(dev, {1000, 17}, behind); }));
}

TEST_CASE("batch norm: operands that do not fit are refused") {
  Cpu dev;
  const auto x = random_tensor<bf16>(dev, {3, 4}, 1);
  auto half = random_tensor<bf16>(dev, {4}, 2);
  auto short_one = random_tensor<float>(dev, {3}, 2);
  auto y = random_tensor<float>(dev, {3, 4}, 2);
  const auto good = random_tensor<float>(dev, {4}, 2);
  CHECK(
      message_of([&] { detail::batch_norm_squared_deviations(dev, x, good, short_one.mut()); }) ==
      "batch_norm: sum [3] of f32 does not fit the columns of [3, 4] of bf16; make it [4] of f32");
  const auto like = random_tensor<bf16>(dev, {3, 4}, 1);
  auto out = random_tensor<bf16>(dev, {3, 4}, 1);
  const detail::BatchNormVectors<Cpu> vectors{good, good, good, good},
      wrong{good, half, good, good};
  CHECK(message_of([&] { detail::batch_norm_apply(dev, x, vectors, {}, true, y.mut()); }) ==
        "batch_norm: y [3, 4] of f32 does not fit [3, 4] of bf16; make it like that");
  CHECK(message_of([&] { detail::batch_norm_apply(dev, x, vectors, y, true, out.mut()); }) ==
        "batch_norm: residual [3, 4] of f32 does not fit [3, 4] of bf16; make it like that");
  CHECK(message_of([&] { detail::batch_norm_apply(dev, x, wrong, {}, true, out.mut()); }) ==
        "batch_norm: inv_std [4] of bf16 does not fit the columns of [3, 4] of bf16; make it [4] "
        "of f32");
  auto sum = random_tensor<float>(dev, {4}, 2);
  CHECK(message_of([&] {
          detail::batch_norm_backward_sums(dev, like, x, vectors, true, sum.mut(), sum.mut(), like,
                                           y.mut());
        }) == "batch_norm: dresidual [3, 4] of f32 does not fit [3, 4] of bf16; make it like that");
  CHECK(message_of([&] {
          detail::batch_norm_backward_sums(dev, y, x, vectors, true, sum.mut(), sum.mut());
        }) == "batch_norm: dy [3, 4] of f32 does not fit [3, 4] of bf16; make it like that");
  CHECK(message_of([&] {
          detail::batch_norm_backward_apply(dev, like, x, vectors, true, sum, short_one, 3,
                                            out.mut());
        }) ==
        "batch_norm: sum_dy_xhat [3] of f32 does not fit the columns of [3, 4] of bf16; make it "
        "[4] of f32");
  CHECK(message_of([&] {
          detail::batch_norm_backward_apply(dev, like, x, vectors, true, sum, sum, 0, out.mut());
        }) == "batch_norm: a count of 0 rows has no mean; give 1 row or more");
}

TEST_CASE_TEMPLATE("batch_norm_from_sums: statistics follow from known sums", A, double, float) {
  Cpu dev;
  // The columns are 1, 3, 5, 7 and 2, 2, 2, 2. In the third column, the sum of squares was rounded down.
  const auto sums = Tensor<Cpu>::from_host(dev, {2, 3}, std::vector<A>{16, 8, 8, 84, 16, 15.999f});
  Tensor<Cpu> mean(dev, dtype_of<A>(), {3}), inv_std(dev, dtype_of<A>(), {3}),
      deviations(dev, dtype_of<A>(), {3});
  detail::batch_norm_from_sums(dev, sums, 4, 1e-4, mean.mut(), inv_std.mut(), deviations.mut());
  CHECK(widened(mean) == std::vector<double>{4, 2, 2});
  CHECK(widened(deviations) == std::vector<double>{20, 0, 0});
  CHECK(distance(widened(inv_std), {1 / std::sqrt(5 + 1e-4), 100, 100}) < 1e-4);
  Tensor<Cpu> short_one(dev, dtype_of<A>(), {2});
  CHECK(message_of([&] {
          detail::batch_norm_from_sums(dev, sums, 4, 1e-4, mean.mut(), short_one.mut(),
                                       deviations.mut());
        }) == concat("batch_norm: inv_std [2] of ", dtype_of<A>(), " does not fit sums [2, 3] of ",
                     dtype_of<A>(), "; make it [3] of ", dtype_of<A>()));
  CHECK(message_of([&] {
          detail::batch_norm_from_sums(dev, sums, 0, 1e-4, mean.mut(), inv_std.mut(),
                                       deviations.mut());
        }) == "batch_norm: sums over 0 rows have no mean; give 1 row or more");
}
