// cuBLASLt and cuDNN compared with the Cpu in double, on the same rounded inputs; needs a GPU, and nvcc for fallbacks.
#ifdef __CUDACC__
#include <dhp/cpu/attention.hpp>
#include <dhp/cpu/batch_norm.hpp>
#include <dhp/cpu/conv2d.hpp>
#include <dhp/cpu/elementwise.hpp>
#include <dhp/cpu/gemm.hpp>
#include <dhp/cpu/rows.hpp>
#include <dhp/cuda/activation.hpp>
#include <dhp/cuda/batch_norm.hpp>
#include <dhp/cuda/cublas_epilogue.hpp>
#include <dhp/cuda/cudnn_attention.hpp>
#include <dhp/cuda/cudnn_batch_norm.hpp>
#include <dhp/cuda/cudnn_conv2d.hpp>
#include <dhp/cuda/elementwise.hpp>
#include <dhp/cuda/library_report.hpp>
#include <dhp/cuda/reduce.hpp>
#include <dhp/cuda/rows.hpp>
#include <tests/cuda/gpu.hpp>
#include <tests/ops/conv2d.hpp>
#include <tests/ops/gemm.hpp>
#include <tests/support/attention.hpp>

namespace {

// Checks that the library ran all problems whose text begins with `start`, and at least one: fallbacks must not count.
void check_done_by_library(Gpu& gpu, const std::string& start) {
  std::int64_t calls = 0;
  for (const auto& use : library_use(gpu)) {
    if (!use.problem.starts_with(start)) continue;
    CHECK_MESSAGE(use.refusal.empty(), to_text(use));
    calls += use.calls;
  }
  CHECK_MESSAGE(calls > 0, start);
}

// The tolerance of a product of T whose result is not rounded to T. Tensor cores add 16-bit products in fp32, but
// truncate instead of rounding: the errors point towards zero and add up, so they exceed those of sums in fp32.
template <class T>
constexpr double wide_tolerance = sizeof(T) == 2 ? 1e-5 : tolerance<Accumulator<T>>;

}  // namespace

TEST_CASE_TEMPLATE("gemm: agrees with the Cpu for all transposes, types of c and biases", T, double,
                   float, bf16, f16) {
  for (auto each : {GemmCase{64, 128, 256}, {1, 1, 1}, {17, 33, 5}, {130, 7, 1000}, {8, 24, 0}})
    for (int bits = 0; bits < 4; ++bits)
      for (const double beta : {0.0, 0.5})
        for (const bool wide_c : {false, true})
          for (const auto bias : {GemmCase::none, GemmCase::of_t, GemmCase::wide}) {
            each.options = {.transpose_a = (bits & 1) != 0,
                            .transpose_b = (bits & 2) != 0,
                            .alpha = 0.25,
                            .beta = beta};
            each.wide_c = wide_c;
            each.bias = bias;
            check_gemm<T, Gpu>(each, wide_tolerance<T>);
          }
}

TEST_CASE_TEMPLATE("gemm: cuBLASLt computes products of whole packs", T, double, float, bf16, f16) {
  Gpu gpu;
  const auto a = random_on<T>(gpu, {64, 256}, 1), b = random_on<T>(gpu, {256, 128}, 2);
  Tensor<Gpu> c(gpu, dtype_of<T>(), {64, 128});
  gemm(gpu, a, b, c.mut());
  check_done_by_library(gpu, "gemm");
  CHECK(library_refusals(gpu).empty());
}

TEST_CASE_TEMPLATE("gemm works at addresses aligned to single elements only", T, float, bf16) {
  const auto [got, expected] = with_oracle<T>([](auto& side) -> Results {
    constexpr std::int64_t n = 40;
    auto storage = side.elements({3 * n * n + 1}, 1);
    const auto matrix = [&](std::int64_t at) {
      return storage.mut().slice(1 + at * n * n, 1 + (at + 1) * n * n).as({n, n});
    };
    gemm(side.dev, matrix(0), matrix(1), matrix(2));
    return side.results(matrix(2));
  });
  CHECK(relative_error(got[0], expected[0]) <= tolerance<T>);
}

TEST_CASE_TEMPLATE("conv2d and its gradients agree with the Cpu", T, double, float, bf16, f16) {
  Sides<T, Gpu> sides;
  for (const auto& layer : {ConvCase{{2, 14, 14, 64}, 64, {3, 1, 1}},
                            {{2, 33, 31, 3}, 16, {7, 2, 3}},
                            {{1, 9, 11, 5}, 7, {3, 2, 1}},
                            {{2, 7, 7, 64}, 128, {1, 2, 0}},
                            {{3, 8, 8, 32}, 16, {1, 1, 0}},
                            {{1, 5, 5, 1}, 1, {5, 1, 0}}}) {
    INFO("x ", to_text(layer.x), " kernel ", layer.geometry.kernel, " stride ",
         layer.geometry.stride);
    const auto [got, expected] = sides([&](auto& side) -> Results {
      auto results = conv_results(side, layer, {0, 1, 0.5});
      const auto image = side.elements(layer.x, 1), weights = side.elements(layer.w(), 2);
      auto with_sums = side.fresh(layer.y());
      const auto sums = detail::conv2d_forward_with_sums(side.dev, image, weights, layer.geometry,
                                                         with_sums.mut());
      if (sums) {  // of its output, before or after rounding
        auto mean = side.fresh_sums({layer.out_channels}),
             squares = side.fresh_sums({layer.out_channels});
        const auto zero = Tensor<std::remove_cvref_t<decltype(side.dev)>>::zeros(
            side.dev, mean.dtype(), {layer.out_channels});
        column_sums(side.dev, with_sums, mean.mut(), 0);
        detail::batch_norm_squared_deviations(side.dev, with_sums, zero, squares.mut());
        CHECK(relative_error(side.values(sums->view().slice(0, 1)), side.values(mean.view())) <=
              4 * tolerance<T>);
        CHECK(relative_error(side.values(sums->view().slice(1, 2)), side.values(squares.view())) <=
              tolerance<T>);
      } else {
        conv2d_forward(side.dev, image, weights, layer.geometry, with_sums.mut());
      }
      results.push_back(side.values(with_sums.view()));
      return results;
    });
    // The gradient of 16-bit weights is rounded to 16 bits once.
    for (std::size_t at = 0; at < got.size(); ++at)
      CHECK(relative_error(got[at], expected[at]) <= tolerance<T>);
  }
  if (!std::is_same_v<T, double>) check_done_by_library(sides.tested.dev, "conv2d");
}

TEST_CASE_TEMPLATE("attention agrees with the Cpu, packed or padded, with numbered dropout", T,
                   bf16, f16) {
  Sides<T, Gpu> sides;
  for (const auto& [lengths, padding] :
       {std::pair{std::vector{100, 1, 230, 69}, std::vector<int>()},
        {{128, 7, 100}, {0, 121, 28}},
        {{1}, {}}})
    for (auto with : {AttentionCase{.size = 64},
                      {.size = 64, .dropout = 0.1},
                      {.size = 32},
                      {.size = 40},
                      {.size = 40, .dropout = 0.5},
                      {.size = 128},
                      {.size = 64, .joined = true},
                      {.size = 64, .dropout = 0.1, .joined = true},
                      {.size = 40, .dropout = 0.5, .joined = true},
                      {.size = 64, .joined = true, .causal = true},
                      {.size = 64, .key_heads = 1, .causal = true},
                      {.size = 128, .dropout = 0.1, .key_heads = 1, .causal = true}}) {
      with.lengths = lengths;
      with.padding = padding;
      with.padding_value = 1;
      with.first_head = 1;
      with.total_heads = 4;
      const auto numbers = with.numbers();
      INFO("rows ", numbers.size(), " head size ", with.size, " dropout ", with.dropout);
      const auto [got, expected] = sides([&](auto& side) { return attention_results(side, with); });
      // Probabilities are rounded to T before use. With a single key, the gradient consists of rounding errors only.
      for (const std::size_t at : {0, 1, 2, 3})
        if (numbers.size() > 1 || at % 3 == 0)
          CHECK(relative_error(got[at], expected[at]) <= 4 * tolerance<T>);
      CHECK(relative_error(got[4], expected[4]) <= 1e-3);
      for (std::size_t row = 0; row < numbers.size(); ++row)
        for (const std::size_t at : {0, 2})
          if (numbers[row] < 0) CHECK(got[at][row * got[at].size() / numbers.size()] == 0);
    }
  check_done_by_library(sides.tested.dev, "attention");
}

TEST_CASE_TEMPLATE("library dropout: both passes use one mask, other rows get another one", T, bf16,
                   f16) {
  Gpu gpu({.library_dropout = true});
  const auto drawn = [&](std::uint32_t use) { return random_on<T>(gpu, {256, 128}, use); };
  const auto v = drawn(3), dy = drawn(4);
  const auto run = [&](std::int64_t first_row, std::uint32_t step, int first_head) {
    const Samples sequences(gpu, {0, 128, 256}, {128, 100}, first_row);
    const AttentionOptions options{.heads = 2,
                                   .first_head = first_head,
                                   .total_heads = 4,
                                   .dropout = 0.5,
                                   .random = {.seed = 5, .series = step, .use = 9}};
    return attention_results<Gpu>(gpu, sequences, options, drawn(1), drawn(2), v, dy);
  };
  const auto one = run(512, 3, 0);
  CHECK(run(512, 3, 0)[0] == one[0]);
  for (const auto& other : {run(768, 3, 0), run(512, 4, 0), run(512, 3, 2)})
    CHECK(relative_error(other[0], one[0]) > 0.1);
  // y is linear in v, so <y, dy> equals <v, dv>. With different masks in the two passes, these products would differ.
  double from_y = 0, from_v = 0, size = 0;
  const auto values = widened(gpu, v), gradient = widened(gpu, dy);
  for (std::size_t at = 0; at < values.size(); ++at) {
    from_y += one[0][at] * gradient[at];
    from_v += one[3][at] * values[at];
    size += one[0][at] * one[0][at];
  }
  CHECK(std::abs(from_y - from_v) < 10 * tolerance<T> * std::sqrt(size));
  check_done_by_library(gpu, "attention");
}

TEST_CASE_TEMPLATE("library dropout: the gradients of q and k use the forward pass's mask", T, bf16,
                   f16) {
  Side<T, Gpu> side{Gpu({.library_dropout = true})};
  Gpu& gpu = side.dev;
  constexpr std::int64_t n = 64;  // tokens, and columns of the one head
  constexpr double dropout = 0.5;
  const Samples sequences(gpu, {0, n}, {n});
  const AttentionOptions options{
      .heads = 1, .total_heads = 1, .dropout = dropout, .random = {.seed = 5}};
  const Shape shape{n, n};
  // Because v is the unit matrix, y holds the kept probabilities times 1 / (1 - dropout).
  std::vector<T> unit(n * n, T(0.0f));
  for (std::size_t at = 0; at < n; ++at) unit[at * n + at] = T(1.0f);
  const auto q = side.elements(shape, 1), k = side.elements(shape, 2), v = side.tensor(shape, unit),
             dy = side.elements(shape, 4);
  const auto found = attention_results<Gpu>(gpu, sequences, options, q, k, v, dy);
  const auto &y = found[0], &logsumexp = found[4];
  const auto in = side.results(q, k, dy);
  std::vector<double> right_dq(n * n), right_dk(n * n);
  for (std::size_t i = 0; i < n; ++i) {
    double inner = 0;  // dy . y
    for (std::size_t j = 0; j < n; ++j) inner += in[2][i * n + j] * y[i * n + j];
    for (std::size_t j = 0; j < n; ++j) {
      double score = 0;
      for (std::size_t c = 0; c < n; ++c) score += in[0][i * n + c] * in[1][j * n + c];
      const double p = std::exp(score / 8 - logsumexp[i]);
      const double kept = y[i * n + j] != 0 ? 1 / (1 - dropout) : 0;
      const double ds = p * (kept * in[2][i * n + j] - inner) / 8;
      for (std::size_t c = 0; c < n; ++c) {
        right_dq[i * n + c] += ds * in[1][j * n + c];
        right_dk[j * n + c] += ds * in[0][i * n + c];
      }
    }
  }
  CHECK(relative_error(found[1], right_dq) <= 4 * tolerance<T>);
  CHECK(relative_error(found[2], right_dk) <= 4 * tolerance<T>);
  check_done_by_library(gpu, "attention");
}

TEST_CASE_TEMPLATE("attention ignores the rows after the last sample", T, bf16, f16) {
  // cuDNN's last tile of 128 rows reaches beyond the last sample, where all inputs are NaN.
  Side<T, Gpu> side;
  Gpu& gpu = side.dev;
  constexpr std::int64_t rows = 200, behind = 128, columns = 128;
  const Samples sequences(gpu, {0, 130, 200}, {130, 70});
  for (const double dropout : {0.0, 0.1}) {
    CAPTURE(dropout);
    const AttentionOptions options{
        .heads = 2, .total_heads = 2, .dropout = dropout, .random = {.seed = 5}};
    const auto pass = [&](bool poisoned) -> Results {
      std::vector<Tensor<Gpu>> storage;
      std::vector<View<Gpu>> views;
      for (int at = 0; at < 8; ++at) {  // q, k, v, dy, y, dq, dk, dv
        auto& one = storage.emplace_back(gpu, dtype_of<T>(), Shape{rows + behind, columns});
        check_cuda(cudaMemsetAsync(one.mut().bytes(), poisoned ? 0xff : 0, one.mut().size_bytes(),
                                   gpu.stream()),
                   "cudaMemsetAsync");
        views.push_back(one.mut().slice(0, rows));
        if (at >= 4) continue;
        const auto values = side.elements({rows, columns}, static_cast<std::uint32_t>(at + 1));
        gpu.copy(views.back().bytes(), values.view().bytes(), values.view().size_bytes());
      }
      auto logsumexp = side.fresh_sums({2, rows});
      attention_forward<Gpu>(gpu, views[0], views[1], views[2], sequences, options, views[4],
                             logsumexp.mut());
      attention_backward<Gpu>(gpu, views[3], views[0], views[1], views[2], views[4], logsumexp,
                              sequences, options, views[5], views[6], views[7]);
      Results results;
      for (std::size_t at = 4; at < views.size(); ++at) results.push_back(side.values(views[at]));
      return results;
    };
    const auto got = pass(true), expected = pass(false);
    // The order of dq's sums may vary.
    for (std::size_t at = 0; at < got.size(); ++at)
      CHECK(relative_error(got[at], expected[at]) <= tolerance<T>);
  }
  check_done_by_library(gpu, "attention");
}

TEST_CASE_TEMPLATE("fused linear layers agree with the unfused operations", T, float, bf16, f16) {
  Side<T, Gpu> side;
  Gpu& gpu = side.dev;
  // GELU's two forms differ by less than 5e-4; f32 has only one of them.
  const double gelu_error = std::is_same_v<T, float> ? 0 : 1e-3;
  const auto check_near = [&](const Tensor<Gpu>& got, const Tensor<Gpu>& expected, double most) {
    CHECK(relative_error(widened(gpu, got), widened(gpu, expected)) <= most);
  };
  struct Sizes {
    std::int64_t rows, in, out;
  };
  for (const auto& s : {Sizes{96, 64, 128}, Sizes{35, 24, 40}, Sizes{17, 5, 7}}) {
    const Shape small{s.rows, s.in}, large{s.rows, s.out}, weights{s.out, s.in};
    const auto x = side.elements(small, 1), w = side.elements(weights, 2);
    const auto bias = side.elements({s.out}, 3), dy = side.elements(large, 4);
    auto before = side.fresh(large), y = side.fresh(large);
    auto before2 = side.fresh(large), y2 = side.fresh(large);
    detail::linear_gelu_forward(gpu, x, w, bias, before.mut(), y.mut());
    gemm(gpu, x, w, before2.mut(), {.transpose_b = true}, bias);
    activation_forward(gpu, Activation::gelu, before2.view(), y2.mut());
    check_near(before, before2, 2 * tolerance<T>);
    check_near(y, y2, 4 * tolerance<T> + gelu_error);
    // A repeated call must give the same bits, because recomputation repeats the forward pass.
    detail::linear_gelu_forward(gpu, x, w, bias, before2.mut(), y2.mut());
    check_near(before, before2, 0);
    check_near(y, y2, 0);

    const auto inputs = side.elements(small, 5);
    for (const double beta : {0.0, 1.0, 0.5}) {
      CAPTURE(beta);
      auto dbefore = side.fresh(small), dbefore2 = side.fresh(small);
      auto sums = side.sums({s.in}, 6), sums2 = side.sums({s.in}, 6);
      detail::gelu_linear_backward(gpu, dy, w, inputs, dbefore.mut(), sums.mut(), beta);
      gemm(gpu, dy, w, dbefore2.mut());
      activation_backward(gpu, Activation::gelu, inputs, dbefore2.view(), dbefore2.mut());
      column_sums(gpu, dbefore2.view(), sums2.mut(), beta);
      check_near(dbefore, dbefore2, 4 * tolerance<T> + gelu_error);
      check_near(sums, sums2, 4 * tolerance<T> + gelu_error);

      auto dw = side.sums(weights, 7), dw2 = side.sums(weights, 7);
      auto db = side.sums({s.out}, 8), db2 = side.sums({s.out}, 8);
      detail::linear_gradients(gpu, dy, x, dw.mut(), db.mut(), beta);
      gemm(gpu, dy, x, dw2.mut(), {.transpose_a = true, .beta = beta});
      column_sums(gpu, dy, db2.mut(), beta);
      check_near(dw, dw2, 1e-5);
      check_near(db, db2, 1e-5);
    }
  }
  for (const auto& refusal : library_refusals(gpu)) MESSAGE(refusal);
}

TEST_CASE_TEMPLATE("fused batch norm agrees with the unfused operations", T, float, bf16, f16) {
  Side<T, Gpu> side;
  Gpu& gpu = side.dev;
  const Shape shape{4, 5, 7, 64}, channels{64};
  const auto rows = static_cast<double>(shape.rows());
  const auto x = side.elements(shape, 1), dy = side.elements(shape, 5);
  const auto gamma = side.sums(channels, 3), beta = side.sums(channels, 4);
  const auto check_near = [&](const auto& got, const auto& expected, double most) {
    CHECK(relative_error(side.values(got), side.values(expected)) <= most);
  };
  for (const auto& [adds, relu] : {std::pair(false, true), {true, true}, {false, false}}) {
    INFO("residual ", adds, " relu ", relu);
    const auto residual = adds ? side.elements(shape, 2) : Tensor<Gpu>();
    auto whole = detail::batch_norm_fused(gpu, x, residual.view(), gamma, beta, 1e-5, relu);
    if (!whole) {
      MESSAGE("skipped: cuDNN has no such norm here");
      return;
    }
    auto mean = side.fresh_sums(channels), squares = side.fresh_sums(channels),
         inv_std = side.fresh_sums(channels), sums = side.fresh_sums(channels),
         products = side.fresh_sums(channels);
    auto y = side.fresh(shape), dresidual = side.fresh(shape), dx = side.fresh(shape);
    column_sums(gpu, x, mean.mut(), 0);
    scale(gpu, 1 / rows, mean.mut());
    detail::batch_norm_squared_deviations(gpu, x, mean, squares.mut());
    auto variance = clone(gpu, squares.view());
    scale(gpu, 1 / rows, variance.mut());
    rsqrt(gpu, variance.view(), 1e-5, inv_std.mut());
    const detail::BatchNormVectors<Gpu> vectors{mean, inv_std, gamma, beta};
    detail::batch_norm_apply(gpu, x, vectors, residual.view(), relu, y.mut());
    check_near(whole->squared_deviations.view(), squares.view(), 1e-5);
    check_near(whole->y.view(), y.view(), 2 * tolerance<T>);

    const detail::BatchNormVectors<Gpu> found_vectors{whole->mean, whole->inv_std, gamma, beta};
    if (auto applied =
            detail::batch_norm_fused_apply(gpu, x, found_vectors, residual.view(), relu)) {
      check_near(applied->y.view(), whole->y.view(), 2 * tolerance<T>);
      whole->y = std::move(applied->y);  // its own signs fit this y
      whole->signs = std::move(applied->signs);
    } else {
      MESSAGE("cuDNN does not apply known statistics here");
    }
    const auto back = detail::batch_norm_fused_backward(gpu, dy, x, found_vectors,
                                                        whole->signs.view(), relu, adds);
    REQUIRE(back.has_value());
    CHECK(back->dresidual.empty() == !adds);
    // The ReLU's mask comes from the fused y, because values near 0 may round to either side.
    if (relu) {
      detail::batch_norm_backward_sums(gpu, dy, x, found_vectors, true, sums.mut(), products.mut(),
                                       whole->y, dresidual.mut());
    } else {
      detail::batch_norm_backward_sums(gpu, dy, x, found_vectors, false, sums.mut(),
                                       products.mut());
      cast(gpu, dy, dresidual.mut());
    }
    detail::batch_norm_backward_apply(gpu, dresidual, x, found_vectors, false, sums, products, rows,
                                      dx.mut());
    check_near(back->sums.view().slice(0, 1), sums.view(), 1e-5);
    check_near(back->sums.view().slice(1, 2), products.view(), 1e-5);
    check_near(back->dx.view(), dx.view(), 2 * tolerance<T>);
    if (adds) check_near(back->dresidual.view(), dresidual.view(), 0);
  }
}
#endif
