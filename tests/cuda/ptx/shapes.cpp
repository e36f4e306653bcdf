// The kernels that move the most bytes in a training step, with typical row lengths. Checks the assumptions of the byte
// ledger (bench/gpu/dry) on compiled code: each tensor is moved once, and a warp's bytes are adjacent.
#include <dhp/cuda/kernels.hpp>
#include <tests/cuda/gpu.hpp>
#include <tests/cuda/ptx/interpreter.hpp>
#include <tests/support/attention.hpp>
#include <tests/support/weights.hpp>

namespace {

/// Checks the bytes and 32-byte sectors that op's launches move. bytes: the ledger's count; op may differ by 5 %.
/// needless: allowed share of sectors beyond the minimum, which L1 serves if a thread's next request reads the rest.
/// Prints both byte counts, bytes of sectors (actual and minimum), instructions of warps, and cycles of shared memory
/// (actual and minimum).
void moves(const char* what, std::int64_t bytes, const auto& op, double needless = 0.02) {
  auto& all = ptx::interpreter();
  const auto before = all.total();
  op();
  auto now = all.total();
  const auto moved = now.bytes_read + now.bytes_written - before.bytes_read - before.bytes_written;
  const auto sectors = now.sectors - before.sectors;
  const auto best = now.sectors_at_best - before.sectors_at_best;
  MESSAGE(std::string(what), " | ", bytes, " | ", moved, " | ", 32 * sectors, " | ", 32 * best,
          " | ", now.instructions - before.instructions, " | ", now.cycles - before.cycles, " | ",
          now.cycles_at_best - before.cycles_at_best);
  CHECK(std::abs(static_cast<double>(moved - bytes)) <= 0.05 * static_cast<double>(bytes));
  CHECK(static_cast<double>(sectors) <= (1 + needless) * static_cast<double>(best));
}

}  // namespace

TEST_CASE("BERT: each tensor is moved once, in whole sectors") {
  Side<bf16, Gpu> side;
  auto& dev = side.dev;
  constexpr std::int64_t rows = 1024, columns = 1024, activation = 2 * rows * columns;
  const Shape shape{rows, columns}, per_row{rows}, per_column{columns};
  const DropoutOptions options{.probability = 0.1, .random = {.seed = 1}, .total_columns = columns};
  const detail::RowNumbers<Gpu> numbers{};
  const auto x = side.elements(shape, 1), other = side.elements(shape, 2);
  const auto gamma = side.sums(per_column, 3), beta = side.sums(per_column, 4);
  auto y = side.fresh(shape), sum = side.fresh(shape);
  auto mean = side.fresh_sums(per_row), inv_std = side.fresh_sums(per_row);
  auto dgamma = side.fresh_sums(per_column), dbeta = side.fresh_sums(per_column);
  moves("layer norm of a residual", 4 * activation, [&] {
    detail::residual_layer_norm_forward(dev, x, other, numbers, options, gamma, beta, 1e-12,
                                        sum.mut(), y.mut(), mean.mut(), inv_std.mut());
  });
  // Each block writes the sums of its rows, and a second launch reads them.
  moves("its gradient", 4 * activation + 2 * 2 * 4 * columns * 256, [&] {
    detail::residual_layer_norm_backward(dev, x, other, gamma, mean, inv_std, numbers, options,
                                         sum.mut(), y.mut(), dgamma.mut(), dbeta.mut(), 0);
  });
  moves("dropout", 2 * activation, [&] { dropout(dev, x, numbers, options, y.mut()); });
  moves("a sum", 3 * activation, [&] { add(dev, x, other, y.mut()); });
  moves("GELU", 2 * activation, [&] { activation_forward(dev, Activation::gelu, x, y.mut()); });
  moves(  // a second launch reads the sums of 32 row tiles
      "column sums", activation + 2 * 32 * 4 * columns,
      [&] { column_sums(dev, x, dgamma.mut(), 0); }, 0.1);

  constexpr std::int64_t words = 2048;
  std::vector<std::int32_t> ids;
  for (std::int64_t row = 0; row < rows; ++row)
    ids.push_back(static_cast<std::int32_t>(row * 31 % words));
  const auto ids_there = side.tensor(per_row, ids);
  const auto table = side.elements({words, columns}, 5);
  auto dtable = side.fresh_sums({words, columns});
  moves("words' rows", 2 * activation,
        [&] { embedding_forward(dev, table, ids_there, 0, y.mut()); });
  moves("their gradient", activation + 4 * words * columns,
        [&] { embedding_backward(dev, x, ids_there, 0, dtable.mut(), 0); });

  constexpr std::int64_t vocabulary = 30522, stride = 30528, masked = 40,
                         logits_bytes = 2 * masked * vocabulary;
  const CrossEntropyOptions loss{.classes = vocabulary, .local_classes = vocabulary};
  const auto logits = side.elements({masked, stride}, 6);
  const auto labels = side.tensor({masked}, std::vector<std::int32_t>(masked, 7));
  const auto scale = side.tensor({1}, std::vector{1.0});
  auto max = side.fresh_sums({masked}), sums = side.fresh_sums({3, masked});
  auto gradient = side.fresh({masked, stride});
  moves("largest logits", logits_bytes,
        [&] { detail::cross_entropy_max(dev, logits, loss, max.mut()); });
  moves("their sums", logits_bytes,
        [&] { detail::cross_entropy_sums(dev, logits, labels, max, loss, sums.mut()); });
  moves("their gradient", 2 * logits_bytes, [&] {
    detail::cross_entropy_backward(dev, logits, max, sums, labels, loss, scale, gradient.mut());
  });
}

TEST_CASE("decoders: each tensor is moved once, in whole sectors") {
  Side<bf16, Gpu> side;
  auto& dev = side.dev;
  constexpr std::int64_t rows = 512, columns = 1024, activation = 2 * rows * columns;
  const Shape shape{rows, columns}, per_row{rows}, per_column{columns};
  const auto x = side.elements(shape, 1), other = side.elements(shape, 2),
             dy = side.elements(shape, 3);
  const auto gamma = side.sums(per_column, 4);
  auto y = side.fresh(shape), dx = side.fresh(shape), inv_rms = side.fresh_sums(per_row);
  auto dgamma = side.fresh_sums(per_column);
  std::vector<std::int32_t> places(rows);
  std::iota(places.begin(), places.end(), 0);
  const auto positions = side.tensor(per_row, places);
  moves("RMS norm", 2 * activation,
        [&] { detail::rms_norm_forward(dev, x, gamma, 1e-6, y.mut(), inv_rms.mut()); });
  moves("its gradient", 3 * activation + 2 * 4 * columns * 256,
        [&] { rms_norm_backward(dev, dy, x, gamma, inv_rms, dx.mut(), dgamma.mut(), 0); });
  moves("SwiGLU", 3 * activation, [&] { detail::swiglu_forward(dev, x, other, y.mut()); });
  moves("its gradient", 7 * activation,
        [&] { detail::swiglu_backward(dev, dy, x, other, dx.mut(), y.mut()); });
  auto rotated = side.elements(shape, 5);
  moves("rotary positions", 2 * activation,
        [&] { detail::rotary(dev, rotated.mut(), positions, {.heads = 16}); });
}

TEST_CASE("optimizers: each tensor is moved once, in whole sectors") {
  Side<bf16, Gpu> side;
  auto& dev = side.dev;
  constexpr std::int64_t count = 1 << 19;
  Weights<Gpu, bf16> w(dev, {{count}});
  const auto state = make_step_state(dev, StepState{.learning_rate = 0.1, .updates = 1});
  const auto rates = side.tensor({1}, std::vector{0.1});
  // Reads gradients; reads and writes moments and masters; writes 16-bit values.
  moves("AdamW", (4 + 3 * 8 + 2) * count, [&] {
    detail::adamw_update(dev, {}, w.table, state, w.gradient, w.m.mut(), w.v.mut(),
                         w.masters.mut());
  });
  moves("LAMB", (4 + 3 * 8 + 2) * count, [&] {
    detail::lamb_update(dev, {}, w.table, state, rates, w.gradient, w.m.mut(), w.v.mut(),
                        w.masters.mut());
  });
  moves("SGD with momentum", (4 + 2 * 8 + 2) * count, [&] {
    sgd_update(dev, {.momentum = 0.9}, w.table, state, {}, w.gradient, w.m.mut(), w.masters.mut());
  });
  auto bits = side.tensor({count / 8}, std::vector<std::uint8_t>(count / 8));
  moves(
      "signs of a gradient", 4 * count + count / 8,
      [&] { detail::pack_signs(dev, w.gradient.view().slice(0, count), bits.mut()); }, 1);
}

TEST_CASE("ResNet: each tensor is moved once, in whole sectors") {
  Side<f16, Gpu> side;
  auto& dev = side.dev;
  const Shape shape{2, 28, 28, 256}, columns{256};
  const auto x = side.elements(shape, 1), dy = side.elements(shape, 2);
  const auto vector = side.sums(columns, 3);
  const detail::BatchNormVectors<Gpu> vectors{vector, vector, vector, vector};
  auto dx = side.fresh(shape);
  moves(
      "gradient of a batch norm", 3 * 2 * shape.count(),
      [&] {
        detail::batch_norm_backward_apply(dev, dy, x, vectors, false, vector, vector, 1568,
                                          dx.mut());
      },
      0.5);  // a thread has few rows for its part of the vectors
  const Shape image{2, 56, 56, 64};
  const PoolGeometry geometry{3, 2, 1};
  const auto pooled = pool_output_shape(image, geometry);
  const auto in = side.elements(image, 4);
  auto out = side.fresh(pooled), din = side.fresh(image);
  Tensor index(dev, DType::i32, pooled);
  moves(
      "max pool", 2 * image.count() + 6 * pooled.count(),
      [&] { max_pool_forward(dev, in, geometry, out.mut(), index.mut()); }, 0.2);
  moves(
      "its gradient", 2 * image.count() + 6 * pooled.count(),
      [&] { max_pool_backward(dev, out, index, geometry, din.mut()); }, 0.6);
}

TEST_CASE("attention on tensor cores reads whole sectors with few bank conflicts") {
  Side<bf16, Gpu> side;
  constexpr std::int32_t length = 256;
  const Shape shape{length, 2 * 64};
  const Samples sequences(side.dev, {0, length}, {length});
  const AttentionOptions options{.heads = 2, .total_heads = 2, .dropout = 0.1};
  const auto q = side.elements(shape, 1), k = side.elements(shape, 2), v = side.elements(shape, 3);
  auto y = side.fresh(shape), dq = side.fresh(shape), dk = side.fresh(shape),
       dv = side.fresh(shape), logsumexp = side.fresh_sums({2, length});
  auto& all = ptx::interpreter();
  const auto before = all.total();
  attention_forward(side.dev, q, k, v, sequences, options, y.mut(), logsumexp.mut());
  attention_backward(side.dev, q, q, k, v, y, logsumexp, sequences, options, dq.mut(), dk.mut(),
                     dv.mut());
  const auto now = all.total();
  const auto within = [](std::int64_t got, std::int64_t best, double share) {
    MESSAGE(got, " of ", best, " at best");
    return static_cast<double>(got) <= (1 + share) * static_cast<double>(best);
  };
  CHECK(within(now.sectors - before.sectors, now.sectors_at_best - before.sectors_at_best, 0.02));
  CHECK(within(now.cycles - before.cycles, now.cycles_at_best - before.cycles_at_best, 0.08));
}
