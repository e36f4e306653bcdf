// cuBLASLt and cuDNN against the definitions in double, from the same rounded inputs; needs a GPU, and nvcc, since what
// the libraries cannot is done by kernels.
#ifdef __CUDACC__
#include <dhp/cuda/cublas_epilogue.hpp>
#include <dhp/cuda/cudnn_attention.hpp>
#include <dhp/cuda/cudnn_batch_norm.hpp>
#include <dhp/cuda/cudnn_conv2d.hpp>
#include <dhp/cuda/elementwise.hpp>
#include <dhp/cuda/library_report.hpp>
#include <tests/cuda/gpu.hpp>
#include <tests/cuda/reference.hpp>

#include <doctest/doctest.h>

#include <optional>

using namespace dhp;
using namespace tests;

namespace {

std::optional<Gpu> some_gpu() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess && count > 0)
    return std::optional<Gpu>(std::in_place);
  quietly(cudaGetLastError());
  MESSAGE("skipped: no GPU is usable");
  return {};
}

// The values of random_on<T>.
template <class T>
Numbers values_of(const Shape& shape, std::uint32_t use) {
  Cpu cpu;
  return tests::widened(random_tensor<T>(cpu, shape, use));
}
// Whether a library did all that begins so, and anything at all: else a fallback would pass for it.
void check_done_by_library(Gpu& gpu, const std::string& start) {
  std::int64_t calls = 0;
  for (const auto& use : library_use(gpu)) {
    if (!use.problem.starts_with(start)) continue;
    CHECK_MESSAGE(use.refusal.empty(), to_text(use));
    calls += use.calls;
  }
  CHECK_MESSAGE(calls > 0, start);
}
std::vector<double> widened(Gpu& gpu, View<Gpu> view) {
  return tests::widened(gpu, clone(gpu, ConstView<Gpu>(view)));
}

}  // namespace

TEST_CASE_TEMPLATE(
    "gemm agrees with its definition in all transpositions, types of c and of the bias", T, double,
    float, bf16, f16) {
  auto found = some_gpu();
  if (!found) return;
  Gpu& gpu = *found;
  using A = Accumulator<T>;
  struct Sizes {
    std::int64_t m, n, k;
  };
  for (const auto& s : {Sizes{64, 128, 256}, Sizes{1, 1, 1}, Sizes{17, 33, 5}, Sizes{130, 7, 1000},
                        Sizes{8, 24, 0}})
    for (int bits = 0; bits < 4; ++bits)
      for (const double beta : {0.0, 0.5})
        for (const bool wide_c : {false, true})
          for (const int bias_kind : {0, 1, 2}) {  // none, T, accumulation type
            const bool ta = (bits & 1) != 0, tb = (bits & 2) != 0;
            const Shape a_shape = ta ? Shape{s.k, s.m} : Shape{s.m, s.k};
            const Shape b_shape = tb ? Shape{s.n, s.k} : Shape{s.k, s.n};
            const GemmOptions options{
                .transpose_a = ta, .transpose_b = tb, .alpha = 0.25, .beta = beta};
            const auto a = random_on<T>(gpu, a_shape, 1), b = random_on<T>(gpu, b_shape, 2);
            auto c = wide_c ? random_on<A>(gpu, {s.m, s.n}, 3) : random_on<T>(gpu, {s.m, s.n}, 3);
            const auto bias = bias_kind == 2   ? random_on<A>(gpu, {s.n}, 4)
                              : bias_kind == 1 ? random_on<T>(gpu, {s.n}, 4)
                                               : Tensor<Gpu>();
            gemm(gpu, a, b, c.mut(), options,
                 bias_kind == 0 ? ConstView<Gpu>() : ConstView<Gpu>(bias));

            const auto bias_values = bias_kind == 2   ? values_of<A>({s.n}, 4)
                                     : bias_kind == 1 ? values_of<T>({s.n}, 4)
                                                      : Numbers();
            const auto expected =
                reference_gemm(s.m, s.n, s.k, values_of<T>(a_shape, 1), values_of<T>(b_shape, 2),
                               wide_c ? values_of<A>({s.m, s.n}, 3) : values_of<T>({s.m, s.n}, 3),
                               options, bias_values);
            INFO(s.m, " ", s.n, " ", s.k, " ", ta, tb, " beta ", beta, " wide ", wide_c, " bias ",
                 bias_kind);
            CHECK(relative_error(tests::widened(gpu, c), expected) <=
                  (wide_c ? tolerance<A> : tolerance<T>));
          }
}

TEST_CASE_TEMPLATE("products of whole packs are cuBLASLt's", T, double, float, bf16, f16) {
  auto found = some_gpu();
  if (!found) return;
  Gpu& gpu = *found;
  const auto a = random_on<T>(gpu, {64, 256}, 1), b = random_on<T>(gpu, {256, 128}, 2);
  Tensor<Gpu> c(gpu, dtype_of<T>(), {64, 128});
  gemm(gpu, a, b, c.mut());
  check_done_by_library(gpu, "gemm");
  CHECK(library_refusals(gpu).empty());
}

TEST_CASE_TEMPLATE("gemm works at addresses that allow single elements only", T, float, bf16) {
  auto found = some_gpu();
  if (!found) return;
  Gpu& gpu = *found;
  const std::int64_t n = 40;
  auto storage = random_on<T>(gpu, {3 * n * n + 1}, 1);
  const auto matrix = [&](std::int64_t at) {
    return storage.mut().slice(1 + at * n * n, 1 + (at + 1) * n * n).as({n, n});
  };
  const auto values = values_of<T>({3 * n * n + 1}, 1);
  const auto oracle = [&](std::int64_t at) {
    const auto first = values.begin() + 1 + at * n * n;
    return Numbers(first, first + n * n);
  };
  gemm(gpu, matrix(0), matrix(1), matrix(2));
  const auto expected = reference_gemm(n, n, n, oracle(0), oracle(1), oracle(2), {});
  CHECK(relative_error(widened(gpu, matrix(2)), expected) <= tolerance<T>);
}

TEST_CASE_TEMPLATE("conv2d and its gradients agree with their definitions", T, double, float, bf16,
                   f16) {
  auto found = some_gpu();
  if (!found) return;
  Gpu& gpu = *found;
  using A = Accumulator<T>;
  struct Sizes {
    std::int64_t n, c, h, w, o;
    Conv2dGeometry geometry;
  };
  for (const auto& s : {Sizes{2, 64, 14, 14, 64, {3, 1, 1}}, Sizes{2, 3, 33, 31, 16, {7, 2, 3}},
                        Sizes{1, 5, 9, 11, 7, {3, 2, 1}}, Sizes{2, 64, 7, 7, 128, {1, 2, 0}},
                        Sizes{3, 32, 8, 8, 16, {1, 1, 0}}, Sizes{1, 1, 5, 5, 1, {5, 1, 0}}}) {
    INFO(s.c, " ", s.h, " ", s.o, " kernel ", s.geometry.kernel, " stride ", s.geometry.stride);
    const Shape x{s.n, s.h, s.w, s.c}, w{s.o, s.geometry.kernel, s.geometry.kernel, s.c};
    const auto y = conv2d_output_shape(x, s.o, s.geometry);
    Tensor<Gpu> got_y(gpu, dtype_of<T>(), y), got_dx(gpu, dtype_of<T>(), x);
    const auto gpu_x = random_on<T>(gpu, x, 1), gpu_w = random_on<T>(gpu, w, 2);
    const auto gpu_dy = random_on<T>(gpu, y, 3);
    conv2d_forward(gpu, gpu_x, gpu_w, s.geometry, got_y.mut());
    conv2d_backward_data(gpu, gpu_dy, gpu_w, s.geometry, got_dx.mut());

    const auto xs = values_of<T>(x, 1), ws = values_of<T>(w, 2), dys = values_of<T>(y, 3);
    Numbers expected_y(index(y.count())), expected_dx(xs.size()), gradient(ws.size());
    for_conv2d_terms(x, y, s.geometry, [&](std::size_t at_x, std::size_t at_w, std::size_t at_y) {
      expected_y[at_y] += xs[at_x] * ws[at_w];
      expected_dx[at_x] += dys[at_y] * ws[at_w];
      gradient[at_w] += dys[at_y] * xs[at_x];
    });
    CHECK(relative_error(tests::widened(gpu, got_y), expected_y) <= tolerance<T>);
    CHECK(relative_error(tests::widened(gpu, got_dx), expected_dx) <= tolerance<T>);
    for (const double beta : {0.0, 1.0, 0.5}) {
      auto got_dw = random_on<A>(gpu, w, 4);
      auto expected_dw = values_of<A>(w, 4);
      for (std::size_t at = 0; at < gradient.size(); ++at)
        expected_dw[at] = beta * expected_dw[at] + gradient[at];
      conv2d_backward_filter(gpu, gpu_x, gpu_dy, s.geometry, got_dw.mut(), beta);
      // The gradient of 16-bit weights is rounded once to 16 bits.
      CHECK(relative_error(tests::widened(gpu, got_dw), expected_dw) <= tolerance<T>);
    }
  }
  if (!std::is_same_v<T, double>) check_done_by_library(gpu, "conv2d");
}

TEST_CASE_TEMPLATE("attention agrees with its definition, packed and padded, and drops by number",
                   T, bf16, f16) {
  auto found = some_gpu();
  if (!found) return;
  Gpu& gpu = *found;
  struct Batch {
    std::vector<std::int32_t> offsets, lengths;
    std::int64_t longest;
  };
  struct Case {
    int head_size;
    double dropout;
  };
  for (const auto& batch : {Batch{{0, 100, 101, 331, 400}, {100, 1, 230, 69}, 230},
                            Batch{{0, 128, 256, 384}, {128, 7, 100}, 128}, Batch{{0, 1}, {1}, 1}})
    for (const auto& [head_size, dropout] :
         {Case{64, 0}, Case{64, 0.1}, Case{32, 0}, Case{40, 0}, Case{40, 0.5}, Case{128, 0}}) {
      const std::int64_t rows = batch.offsets.back();
      const AttentionOptions options{.heads = 2,
                                     .first_head = 1,
                                     .total_heads = 4,
                                     .dropout = dropout,
                                     .random = {.seed = 5, .step = 3, .use = 9}};
      const Shape shape{rows, 2 * head_size}, statistics{2, rows};
      INFO("rows ", rows, " head size ", head_size, " dropout ", dropout);
      const auto samples = static_cast<std::int64_t>(batch.lengths.size());
      std::vector<std::int64_t> each_row;
      for (std::int64_t row = 0; row < rows; ++row) each_row.push_back(row);
      const auto offsets = Tensor<Gpu>::from_host(gpu, {samples + 1}, batch.offsets);
      const auto lengths = Tensor<Gpu>::from_host(gpu, {samples}, batch.lengths);
      const auto numbers = Tensor<Gpu>::from_host(gpu, {rows}, each_row);
      const Sequences<Gpu> sequences{offsets, lengths, numbers, batch.longest};
      const auto q = random_on<T>(gpu, shape, 1), k = random_on<T>(gpu, shape, 2),
                 v = random_on<T>(gpu, shape, 3), dy = random_on<T>(gpu, shape, 4);
      Tensor<Gpu> y(gpu, dtype_of<T>(), shape), lse(gpu, DType::f32, statistics);
      Tensor<Gpu> dq(gpu, dtype_of<T>(), shape), dk(gpu, dtype_of<T>(), shape),
          dv(gpu, dtype_of<T>(), shape);
      attention_forward(gpu, q, k, v, sequences, options, y.mut(), lse.mut());
      attention_backward(gpu, dy, q, k, v, y, lse, sequences, options, dq.mut(), dk.mut(),
                         dv.mut());

      const auto mask = [&, drops = dropout](std::int64_t head, std::int64_t row,
                                             std::int64_t key) {
        const auto first = (row * options.total_heads + options.first_head + head) * batch.longest;
        const auto number = static_cast<std::uint64_t>(first + key);
        return options.random.uniform(number) >= drops ? 1 / (1 - drops) : 0.0;
      };
      const auto expected = reference_attention(values_of<T>(shape, 1), values_of<T>(shape, 2),
                                                values_of<T>(shape, 3), values_of<T>(shape, 4),
                                                batch.offsets, batch.lengths, 2, head_size, mask);
      const double bound = 4 * tolerance<T>;  // probabilities are rounded to T before they are used
      CHECK(relative_error(tests::widened(gpu, y), expected.y) <= bound);
      CHECK(relative_error(tests::widened(gpu, lse), expected.logsumexp) <= 1e-3);
      // A single key has no gradient but rounding's.
      if (rows > 1) {
        CHECK(relative_error(tests::widened(gpu, dq), expected.dq) <= bound);
        CHECK(relative_error(tests::widened(gpu, dk), expected.dk) <= bound);
      }
      CHECK(relative_error(tests::widened(gpu, dv), expected.dv) <= bound);
      const auto got = tests::widened(gpu, y), dk_got = tests::widened(gpu, dk);
      for (std::size_t n = 0; n < batch.lengths.size(); ++n)
        for (auto row = batch.offsets[n] + batch.lengths[n]; row < batch.offsets[n + 1]; ++row) {
          CHECK(got[static_cast<std::size_t>(row * shape[1])] == 0);
          CHECK(dk_got[static_cast<std::size_t>(row * shape[1])] == 0);
        }
    }
  // cuDNN takes no mask on Blackwell.
  if (gpu.properties().major < 10) check_done_by_library(gpu, "attention");
}

TEST_CASE_TEMPLATE("epilogues of products do what they say, where they are supported", T, bf16,
                   f16) {
  auto found = some_gpu();
  if (!found) return;
  Gpu& gpu = *found;
  const std::int64_t rows = 96, in = 64, out = 128;
  const auto x = random_on<T>(gpu, {rows, in}, 1), w = random_on<T>(gpu, {out, in}, 2);
  const auto bias = random_on<T>(gpu, {out}, 3), dy = random_on<T>(gpu, {rows, out}, 4);
  const auto before64 =
      reference_gemm(rows, out, in, values_of<T>({rows, in}, 1), values_of<T>({out, in}, 2),
                     Numbers(index(rows * out)), {.transpose_b = true}, values_of<T>({out}, 3));

  Tensor<Gpu> y(gpu, dtype_of<T>(), {rows, out}), before(gpu, dtype_of<T>(), {rows, out});
  const cuda::LinearGelu<Gpu> forward{x, w, bias, y.mut(), before.mut()};
  if (cuda::fused_supported(gpu, forward)) {
    REQUIRE(cuda::run_fused(gpu, forward));
    CHECK(relative_error(tests::widened(gpu, before), before64) <= tolerance<T>);
    std::vector<double> expected;
    for (const double value : before64)
      expected.push_back(
          0.5 * value *
          (1 + std::tanh(0.7978845608028654 * (value + 0.044715 * value * value * value))));
    CHECK(relative_error(tests::widened(gpu, y), expected) <= 2 * tolerance<T>);
  } else {
    MESSAGE("skipped: cuBLASLt has no GELU with bias and input here");
  }

  // dx of a second linear layer [in2 = out], through GELU at `before`.
  const auto w2 = random_on<T>(gpu, {in, out}, 5), dz = random_on<T>(gpu, {rows, in}, 6);
  const auto inputs = random_on<T>(gpu, {rows, out}, 7);
  Tensor<Gpu> dbefore(gpu, dtype_of<T>(), {rows, out}), dbias(gpu, dtype_of<T>(), {out});
  const cuda::LinearGeluGradient<Gpu> backward{dz, w2, inputs, dbefore.mut(), dbias.mut()};
  if (cuda::fused_supported(gpu, backward)) {
    REQUIRE(cuda::run_fused(gpu, backward));
    auto expected = reference_gemm(rows, out, in, values_of<T>({rows, in}, 6),
                                   values_of<T>({in, out}, 5), Numbers(index(rows * out)), {});
    const auto points = values_of<T>({rows, out}, 7);
    std::vector<double> sums(static_cast<std::size_t>(out), 0.0);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const double p = points[i], c = 0.7978845608028654;
      const double t = std::tanh(c * (p + 0.044715 * p * p * p));
      expected[i] *= 0.5 * (1 + t) + 0.5 * p * (1 - t * t) * c * (1 + 3 * 0.044715 * p * p);
      sums[i % static_cast<std::size_t>(out)] += expected[i];
    }
    CHECK(relative_error(tests::widened(gpu, dbefore), expected) <= 2 * tolerance<T>);
    CHECK(relative_error(tests::widened(gpu, dbias), sums) <= 2 * tolerance<T>);
  } else {
    MESSAGE("skipped: cuBLASLt has no gradient of GELU with that of the bias here");
  }

  for (const auto type : {dtype_of<T>(), DType::f32}) {
    Tensor<Gpu> dw(gpu, type, {out, in}), db(gpu, type, {out});
    const cuda::WeightAndBiasGradient<Gpu> gradient{dy, x, dw.mut(), db.mut()};
    if (!cuda::fused_supported(gpu, gradient)) {
      MESSAGE("skipped: cuBLASLt has no bias gradient of ", to_text(type), " here");
      continue;
    }
    REQUIRE(cuda::run_fused(gpu, gradient));
    const auto dys = values_of<T>({rows, out}, 4);
    const auto dw64 = reference_gemm(out, in, rows, dys, values_of<T>({rows, in}, 1),
                                     Numbers(index(out * in)), {.transpose_a = true});
    Numbers db64(index(out));
    for (std::size_t at = 0; at < dys.size(); ++at) db64[at % db64.size()] += dys[at];
    CHECK(relative_error(tests::widened(gpu, dw), dw64) <= tolerance<T>);
    CHECK(relative_error(tests::widened(gpu, db), db64) <= tolerance<T>);
  }
}

TEST_CASE_TEMPLATE("linear layers with what stands beside them are what their pieces are", T, float,
                   bf16, f16) {
  auto found = some_gpu();
  if (!found) return;
  Gpu& gpu = *found;
  using A = Accumulator<T>;
  // Both kinds of GELU are within 5e-4 of each other; in f32 there is one.
  const double gelu_error = std::is_same_v<T, float> ? 0 : 1e-3;
  struct Sizes {
    std::int64_t rows, in, out;
  };
  for (const auto& s : {Sizes{96, 64, 128}, Sizes{35, 24, 40}, Sizes{17, 5, 7}}) {
    const auto x = random_on<T>(gpu, {s.rows, s.in}, 1), w = random_on<T>(gpu, {s.out, s.in}, 2);
    const auto bias = random_on<T>(gpu, {s.out}, 3), dy = random_on<T>(gpu, {s.rows, s.out}, 4);
    const auto like = [&](std::int64_t columns) {
      return Tensor<Gpu>(gpu, dtype_of<T>(), {s.rows, columns});
    };
    Tensor<Gpu> before = like(s.out), y = like(s.out), before2 = like(s.out), y2 = like(s.out);
    linear_gelu_forward(gpu, x, w, bias, before.mut(), y.mut());
    gemm(gpu, x, w, before2.mut(), {.transpose_b = true}, bias);
    activation_forward(gpu, Activation::gelu, before2.view(), y2.mut());
    CHECK(relative_error(tests::widened(gpu, before), tests::widened(gpu, before2)) <=
          2 * tolerance<T>);
    CHECK(relative_error(tests::widened(gpu, y), tests::widened(gpu, y2)) <=
          4 * tolerance<T> + gelu_error);
    // The same bits again: a forward pass that is recomputed relies on it.
    linear_gelu_forward(gpu, x, w, bias, before2.mut(), y2.mut());
    CHECK(tests::widened(gpu, before) == tests::widened(gpu, before2));
    CHECK(tests::widened(gpu, y) == tests::widened(gpu, y2));

    const auto inputs = random_on<T>(gpu, {s.rows, s.in}, 5);
    for (const double beta : {0.0, 1.0, 0.5}) {
      CAPTURE(beta);
      Tensor<Gpu> dbefore = like(s.in), dbefore2 = like(s.in);
      auto sums = random_on<A>(gpu, {s.in}, 6), sums2 = random_on<A>(gpu, {s.in}, 6);
      gelu_linear_backward(gpu, dy, w, inputs, dbefore.mut(), sums.mut(), beta);
      gemm(gpu, dy, w, dbefore2.mut());
      activation_backward(gpu, Activation::gelu, inputs, dbefore2.view(), dbefore2.mut());
      column_sums(gpu, dbefore2.view(), sums2.mut(), beta);
      CHECK(relative_error(tests::widened(gpu, dbefore), tests::widened(gpu, dbefore2)) <=
            4 * tolerance<T> + gelu_error);
      CHECK(relative_error(tests::widened(gpu, sums), tests::widened(gpu, sums2)) <=
            4 * tolerance<T> + gelu_error);

      auto dw = random_on<A>(gpu, {s.out, s.in}, 7), dw2 = random_on<A>(gpu, {s.out, s.in}, 7);
      auto db = random_on<A>(gpu, {s.out}, 8), db2 = random_on<A>(gpu, {s.out}, 8);
      linear_gradients(gpu, dy, x, dw.mut(), db.mut(), beta);
      gemm(gpu, dy, x, dw2.mut(), {.transpose_a = true, .beta = beta});
      column_sums(gpu, dy, db2.mut(), beta);
      CHECK(relative_error(tests::widened(gpu, dw), tests::widened(gpu, dw2)) <= 1e-5);
      CHECK(relative_error(tests::widened(gpu, db), tests::widened(gpu, db2)) <= 1e-5);
    }
  }
}

TEST_CASE_TEMPLATE(
    "batch norm with residual and ReLU agrees with its definition, and keeps to its bits", T, float,
    bf16, f16) {
  auto found = some_gpu();
  if (!found) return;
  Gpu& gpu = *found;
  const Shape shape{4, 5, 7, 64};
  const std::int64_t rows = shape.rows(), channels = shape.back(), guard = 64;
  if (!cuda::norm_relu_supported(gpu, random_on<T>(gpu, shape, 1).view(), true)) {
    MESSAGE("skipped: cuDNN has no such norm here");
    return;
  }
  const auto x = random_on<T>(gpu, shape, 1), residual = random_on<T>(gpu, shape, 2);
  const auto gamma = random_on<float>(gpu, {channels}, 3),
             beta = random_on<float>(gpu, {channels}, 4);
  const auto dy = random_on<T>(gpu, shape, 5);
  Tensor<Gpu> mean(gpu, DType::f32, {channels}), inv_std(gpu, DType::f32, {channels});
  Tensor<Gpu> y(gpu, dtype_of<T>(), shape), dx(gpu, dtype_of<T>(), shape);
  Tensor<Gpu> dresidual(gpu, dtype_of<T>(), shape);
  Tensor<Gpu> dgamma(gpu, DType::f32, {channels}), dbeta(gpu, DType::f32, {channels});
  const auto bytes = cuda::sign_bytes(shape.count());
  auto signs = Tensor<Gpu>::from_host(
      gpu, {bytes + guard},
      std::vector<std::uint8_t>(static_cast<std::size_t>(bytes + guard), 0xa5));
  REQUIRE(cuda::norm_relu(gpu, cuda::NormRelu<Gpu>{x, residual, gamma, beta, 1e-5, mean.mut(),
                                                   inv_std.mut(), y.mut(), signs.mut()}));
  REQUIRE(cuda::norm_relu_backward(
      gpu, cuda::NormReluGradient<Gpu>{dy, x, signs, gamma, mean, inv_std, dx.mut(),
                                       dresidual.mut(), dgamma.mut(), dbeta.mut()}));
  const auto after = signs.template to_host<std::uint8_t>(gpu);
  for (std::int64_t at = bytes; at < bytes + guard; ++at)
    CHECK(after[static_cast<std::size_t>(at)] == 0xa5);

  const auto xs = values_of<T>(shape, 1);
  const auto rs = values_of<T>(shape, 2);
  const auto gs = values_of<float>({channels}, 3);
  const auto bs = values_of<float>({channels}, 4);
  const auto dys = values_of<T>(shape, 5);
  const auto got_y = tests::widened(gpu, y);
  std::vector<double> ey(xs.size()), edx(xs.size()), edr(xs.size()), edg, edb;
  for (std::int64_t c = 0; c < channels; ++c) {
    const auto place = [&](std::int64_t row) { return index(row * channels + c); };
    const auto n = static_cast<double>(rows);
    double sum = 0, squares = 0, sum_dy = 0, sum_dy_xhat = 0;
    for (std::int64_t row = 0; row < rows; ++row) sum += xs[place(row)];
    for (std::int64_t row = 0; row < rows; ++row)
      squares += (xs[place(row)] - sum / n) * (xs[place(row)] - sum / n);
    const double scale = 1 / std::sqrt(squares / n + 1e-5);
    const auto channel = static_cast<std::size_t>(c);
    const auto normed = [&](std::int64_t row) { return (xs[place(row)] - sum / n) * scale; };
    for (std::int64_t row = 0; row < rows; ++row) {
      const auto i = place(row);
      ey[i] = std::max(normed(row) * gs[channel] + bs[channel] + rs[i], 0.0);
      // Values next to 0 may round to either side: the bits belong to what was stored.
      edr[i] = got_y[i] > 0 ? dys[i] : 0;
      sum_dy += edr[i];
      sum_dy_xhat += edr[i] * normed(row);
    }
    edb.push_back(sum_dy);
    edg.push_back(sum_dy_xhat);
    for (std::int64_t row = 0; row < rows; ++row)
      edx[place(row)] =
          gs[channel] * scale * (edr[place(row)] - sum_dy / n - normed(row) * sum_dy_xhat / n);
  }
  CHECK(relative_error(got_y, ey) <= 2 * tolerance<T>);
  CHECK(tests::widened(gpu, dresidual) == edr);
  CHECK(relative_error(tests::widened(gpu, dbeta), edb) <= 1e-5);
  CHECK(relative_error(tests::widened(gpu, dgamma), edg) <= 1e-5);
  CHECK(relative_error(tests::widened(gpu, dx), edx) <= 2 * tolerance<T>);
}

TEST_CASE_TEMPLATE("batch norm as a whole is what its pieces are", T, float, bf16, f16) {
  auto found = some_gpu();
  if (!found) return;
  Gpu& gpu = *found;
  const Shape shape{4, 5, 7, 64};
  const std::int64_t channels = shape.back();
  const auto rows = static_cast<double>(shape.rows());
  const auto x = random_on<T>(gpu, shape, 1), dy = random_on<T>(gpu, shape, 5);
  const auto gamma = random_on<float>(gpu, {channels}, 3),
             beta = random_on<float>(gpu, {channels}, 4);
  for (const bool adds : {false, true}) {
    CAPTURE(adds);
    const auto residual = adds ? random_on<T>(gpu, shape, 2) : Tensor<Gpu>();
    auto whole = batch_norm_fused(gpu, x, residual.view(), gamma, beta, 1e-5, true);
    if (!whole) {
      MESSAGE("skipped: cuDNN has no such norm here");
      return;
    }
    const auto vector = [&] { return Tensor<Gpu>(gpu, DType::f32, {channels}); };
    const auto like_x = [&] { return Tensor<Gpu>(gpu, x.dtype(), shape); };
    Tensor<Gpu> mean = vector(), squares = vector(), inv_std = vector(), sums = vector(),
                products = vector(), y = like_x(), dresidual = like_x(), dx = like_x();
    batch_norm_sums(gpu, x, mean.mut());
    scale(gpu, 1 / rows, mean.mut());
    batch_norm_squared_deviations(gpu, x, mean, squares.mut());
    auto variance = clone(gpu, squares.view());
    scale(gpu, 1 / rows, variance.mut());
    rsqrt(gpu, variance.view(), 1e-5, inv_std.mut());
    const BatchNormVectors<Gpu> vectors{mean, inv_std, gamma, beta};
    batch_norm_apply(gpu, x, vectors, residual.view(), true, y.mut());
    CHECK(relative_error(tests::widened(gpu, whole->squared_deviations),
                         tests::widened(gpu, squares)) <= 1e-5);
    CHECK(relative_error(tests::widened(gpu, whole->y), tests::widened(gpu, y)) <=
          2 * tolerance<T>);

    const BatchNormVectors<Gpu> found_vectors{whole->mean, whole->inv_std, gamma, beta};
    const auto back =
        batch_norm_fused_backward(gpu, dy, x, found_vectors, whole->signs.view(), adds);
    REQUIRE(back.has_value());
    CHECK(back->dresidual.empty() == !adds);
    // By the y of the whole: values next to 0 may round to either side.
    batch_norm_residual_backward_sums(gpu, dy, whole->y, x, found_vectors, dresidual.mut(),
                                      sums.mut(), products.mut());
    batch_norm_backward_apply(gpu, dresidual, x, found_vectors, false, sums, products, rows,
                              dx.mut());
    const auto found_sums = tests::widened(gpu, back->sums);
    const auto middle = found_sums.begin() + channels;
    CHECK(relative_error({found_sums.begin(), middle}, tests::widened(gpu, sums)) <= 1e-5);
    CHECK(relative_error({middle, found_sums.end()}, tests::widened(gpu, products)) <= 1e-5);
    CHECK(relative_error(tests::widened(gpu, back->dx), tests::widened(gpu, dx)) <=
          2 * tolerance<T>);
    if (adds) CHECK(tests::widened(gpu, back->dresidual) == tests::widened(gpu, dresidual));
  }
}
#endif
