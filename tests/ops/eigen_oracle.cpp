// Matrix products, convolutions and attention in fp64 beside Eigen: code that shares nothing with dhp's,
// at sizes of many tiles and blocks. Eigen's product is compiled here once, as multiply().
#include <dhp/cpu/attention.hpp>
#include <dhp/cpu/conv2d.hpp>
#include <dhp/cpu/gemm.hpp>
#include <dhp/eigen.hpp>
#include <tests/support/tensors.hpp>

namespace {

using Matrix = eigen::RowMajor<double>;

Matrix multiply(const Matrix& a, const Matrix& b) {
  Matrix product(a.rows(), b.cols());
  product.noalias() = a * b;
  return product;
}
Matrix transposed(const Matrix& a) { return a.transpose(); }

// The largest difference, relative to the largest expected value; NaN if there is any.
double gap(const Tensor<Cpu>& got, const Matrix& expected) {
  const Tensor<Cpu> flat = eigen::borrow(expected);
  return distance(widened(got), widened(flat), expected.cwiseAbs().maxCoeff());
}

}  // namespace

TEST_CASE("gemm agrees with Eigen's product in all four forms") {
  Cpu dev({.threads = 2});
  struct Size {
    std::int64_t m, n, k;
  };
  for (const auto& [m, n, k] : {Size{257, 131, 519}, Size{64, 64, 64}, Size{1, 700, 33}})
    for (int form = 0; form < 4; ++form) {
      const bool ta = (form & 1) != 0, tb = (form & 2) != 0;
      INFO("form ", form, " m ", m);
      const auto a = random_tensor<double>(dev, ta ? Shape{k, m} : Shape{m, k}, 1);
      const auto b = random_tensor<double>(dev, tb ? Shape{n, k} : Shape{k, n}, 2);
      auto c = random_tensor<double>(dev, {m, n}, 3);
      const auto bias = random_tensor<double>(dev, {n}, 4);
      const Matrix left = eigen::rows_of<double>(a), right = eigen::rows_of<double>(b);
      Matrix expected = multiply(ta ? transposed(left) : left, tb ? transposed(right) : right);
      expected = 0.5 * expected - 1.5 * eigen::rows_of<double>(c);
      expected.rowwise() += eigen::rows_of<double>(bias).row(0);
      gemm(dev, a, b, c.mut(), {.transpose_a = ta, .transpose_b = tb, .alpha = 0.5, .beta = -1.5},
           bias);
      CHECK(gap(c, expected) < 1e-13);
    }
}

namespace {

struct Layer {
  Shape x;
  std::int64_t out;
  Conv2dGeometry geometry;
};

// A convolution is one matrix product for each of its taps: the pixels under a tap, one row per output
// pixel and zeros outside of the image, times the weights of the tap.
struct Taps {
  const Layer& layer;
  const Shape y;

  explicit Taps(const Layer& of) : layer(of), y(conv2d_output_shape(of.x, of.out, of.geometry)) {}

  // body(row of the output, row of the image under the tap), where the tap is inside of the image.
  template <class Body>
  void for_pixels(int kh, int kw, Body body) const {
    const auto& [x, out, geometry] = layer;
    Eigen::Index row = 0;
    for (std::int64_t n = 0; n < y[0]; ++n)
      for (std::int64_t oh = 0; oh < y[1]; ++oh)
        for (std::int64_t ow = 0; ow < y[2]; ++ow, ++row) {
          const auto h = oh * geometry.stride - geometry.padding + kh;
          const auto w = ow * geometry.stride - geometry.padding + kw;
          if (h >= 0 && h < x[1] && w >= 0 && w < x[2]) body(row, (n * x[1] + h) * x[2] + w);
        }
  }
  [[nodiscard]] Matrix pixels(const Matrix& x, int kh, int kw) const {
    Matrix under = Matrix::Zero(y.rows(), x.cols());
    for_pixels(kh, kw, [&](auto row, auto pixel) { under.row(row) = x.row(pixel); });
    return under;
  }
};

}  // namespace

TEST_CASE("conv2d and its gradients agree with a product of Eigen per tap") {
  Cpu dev({.threads = 2});
  for (const auto& layer :
       {Layer{{2, 28, 28, 32}, 48, {3, 1, 1}}, Layer{{2, 27, 30, 24}, 40, {3, 2, 1}},
        Layer{{1, 40, 33, 3}, 64, {7, 2, 3}}, Layer{{2, 14, 14, 64}, 72, {1, 2, 0}}}) {
    CAPTURE(to_text(layer.x));
    const Taps taps(layer);
    const std::int64_t kernel = layer.geometry.kernel, in = layer.x[3];
    const auto x = random_tensor<double>(dev, layer.x, 1);
    const auto w = random_tensor<double>(dev, {layer.out, kernel, kernel, in}, 2);
    const auto dy = random_tensor<double>(dev, taps.y, 3);
    const Matrix image = eigen::rows_of<double>(x), above = eigen::rows_of<double>(dy);
    // Weights as [O, K K C]: those of a tap are C columns of it.
    const Matrix weights = eigen::rows_of<double>(w.view().as({layer.out, kernel * kernel * in}));
    Matrix expected_y = Matrix::Zero(above.rows(), layer.out);
    Matrix expected_dx = Matrix::Zero(image.rows(), in);
    Matrix expected_dw(weights.rows(), weights.cols());
    for (int kh = 0; kh < kernel; ++kh)
      for (int kw = 0; kw < kernel; ++kw) {
        const auto first = (kh * kernel + kw) * in;
        const Matrix tap = weights.middleCols(first, in);
        const Matrix under = taps.pixels(image, kh, kw);
        expected_y += multiply(under, transposed(tap));
        expected_dw.middleCols(first, in) = multiply(transposed(above), under);
        const Matrix below = multiply(above, tap);
        taps.for_pixels(kh, kw,
                        [&](auto row, auto pixel) { expected_dx.row(pixel) += below.row(row); });
      }
    Tensor<Cpu> y(dev, DType::f64, taps.y), dx(dev, DType::f64, layer.x),
        dw(dev, DType::f64, w.shape());
    conv2d_forward(dev, x, w, layer.geometry, y.mut());
    conv2d_backward_data(dev, dy, w, layer.geometry, dx.mut());
    conv2d_backward_filter(dev, x, dy, layer.geometry, dw.mut(), 0);
    CHECK(gap(y, expected_y) < 1e-13);
    CHECK(gap(dx, expected_dx) < 1e-13);
    CHECK(gap(dw, expected_dw) < 1e-13);
  }
}

TEST_CASE("attention and its gradients agree with Eigen's products over whole matrices") {
  constexpr std::int64_t heads = 3, size = 40, columns = heads * size;
  const std::vector<std::int32_t> lengths{150, 1, 67};
  Cpu dev({.threads = 2});
  std::vector<std::int32_t> offsets{0};
  std::vector<std::int64_t> numbers;
  for (const auto length : lengths) {
    for (int i = 0; i < length; ++i) numbers.push_back(static_cast<std::int64_t>(numbers.size()));
    offsets.push_back(static_cast<std::int32_t>(numbers.size()));
  }
  const auto rows = static_cast<std::int64_t>(numbers.size());
  const auto q = random_tensor<double>(dev, {rows, columns}, 1);
  const auto k = random_tensor<double>(dev, {rows, columns}, 2);
  const auto v = random_tensor<double>(dev, {rows, columns}, 3);
  const auto dy = random_tensor<double>(dev, {rows, columns}, 4);

  Matrix y(rows, columns), dq(rows, columns), dk(rows, columns), dv(rows, columns);
  Matrix logsumexp(heads, rows);
  const double scale = 1 / std::sqrt(static_cast<double>(size));
  for (std::size_t sample = 0; sample < lengths.size(); ++sample)
    for (std::int64_t head = 0; head < heads; ++head) {
      const auto first = offsets[sample], length = lengths[sample];
      const auto part = [&](auto&& whole) { return whole.block(first, head * size, length, size); };
      const Matrix queries = part(eigen::rows_of<double>(q)),
                   keys = part(eigen::rows_of<double>(k)), values = part(eigen::rows_of<double>(v)),
                   above = part(eigen::rows_of<double>(dy));
      Matrix p = (scale * multiply(queries, transposed(keys))).array().exp();
      const Eigen::VectorXd sums = p.rowwise().sum();
      logsumexp.row(head).segment(first, length) = sums.array().log().transpose();
      p = sums.cwiseInverse().asDiagonal() * p;
      const Matrix dp = multiply(above, transposed(values));
      const Eigen::VectorXd inner = p.cwiseProduct(dp).rowwise().sum();
      const Matrix ds = scale * p.cwiseProduct(dp.colwise() - inner);
      part(y) = multiply(p, values);
      part(dv) = multiply(transposed(p), above);
      part(dq) = multiply(ds, keys);
      part(dk) = multiply(transposed(ds), queries);
    }

  const auto ints = [&](const auto& of) {
    return Tensor<Cpu>::from_host(dev, {static_cast<std::int64_t>(of.size())}, of);
  };
  const auto begins = ints(offsets), of_samples = ints(lengths), of_rows = ints(numbers);
  const Sequences<Cpu> sequences{begins.view(), of_samples.view(), of_rows.view(), 150};
  const AttentionOptions options{.heads = heads, .total_heads = heads};
  const auto like_q = [&] { return Tensor<Cpu>(dev, DType::f64, q.shape()); };
  auto got_y = like_q(), got_dq = like_q(), got_dk = like_q(), got_dv = like_q();
  Tensor<Cpu> got_logsumexp(dev, DType::f64, {heads, rows});
  attention_forward(dev, q, k, v, sequences, options, got_y.mut(), got_logsumexp.mut());
  attention_backward(dev, dy, q, k, v, got_y, got_logsumexp, sequences, options, got_dq.mut(),
                     got_dk.mut(), got_dv.mut());
  CHECK(gap(got_y, y) < 1e-13);
  CHECK(gap(got_logsumexp, logsumexp) < 1e-13);
  CHECK(gap(got_dq, dq) < 1e-13);
  CHECK(gap(got_dk, dk) < 1e-13);
  CHECK(gap(got_dv, dv) < 1e-13);
}
