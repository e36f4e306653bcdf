// Conversions between dhp's layout of samples and cuDNN's: packed and padded batches, empty and surplus samples.
#include <dhp/cuda/attention_layout.hpp>
#include <tests/cuda/gpu.hpp>

using namespace dhp::detail::cuda;

namespace {

struct Batch {
  const char* name;
  std::vector<std::int32_t> offsets, lengths;
  [[nodiscard]] std::int64_t rows() const { return offsets.back(); }
  [[nodiscard]] std::int64_t samples() const { return static_cast<std::int64_t>(lengths.size()); }
  /// Calls body(row, whether the row is a token).
  void for_rows(const auto& body) const {
    for (std::size_t n = 0; n < lengths.size(); ++n)
      for (auto row = offsets[n]; row < offsets[n + 1]; ++row)
        body(row, row < offsets[n] + lengths[n]);
  }
};

std::vector<Batch> batches() {
  return {{"packed", {0, 5, 6, 70}, {5, 1, 64}},
          {"padded", {0, 7, 14, 21}, {7, 3, 1}},
          {"with empty samples", {0, 0, 4, 4, 4, 9}, {0, 3, 0, 0, 5}},
          {"all padding", {0, 6}, {0}}};
}

/// The description of samples for cuDNN. Its graph may have room for more samples.
struct Described {
  std::vector<std::int64_t> starts, wide_starts, key_starts;
  std::vector<std::int32_t> counts;
};
Described described(Gpu& gpu, const Batch& batch, std::int64_t in_graph, std::int64_t columns,
                    const AttentionSeed& seed = {}) {
  const auto offsets = tensor_of(gpu, batch.offsets), lengths = tensor_of(gpu, batch.lengths);
  Tensor<Gpu> elements(gpu, DType::i64, {in_graph + 1}), wide(gpu, DType::i64, {in_graph + 1}),
      keys(gpu, DType::i64, {in_graph + 1}), graph_lengths(gpu, DType::i32, {in_graph});
  launch(gpu, grid_for(gpu, in_graph + 1),
         DescribeSamples{batch.samples(), in_graph, columns, 2 * columns, 3 * columns,
                         offsets.view().data<std::int32_t>(), lengths.view().data<std::int32_t>(),
                         elements.mut().data<std::int64_t>(), wide.mut().data<std::int64_t>(),
                         keys.mut().data<std::int64_t>(), graph_lengths.mut().data<std::int32_t>(),
                         seed});
  return {elements.to_host<std::int64_t>(gpu), wide.to_host<std::int64_t>(gpu),
          keys.to_host<std::int64_t>(gpu), graph_lengths.to_host<std::int32_t>(gpu)};
}

}  // namespace

TEST_CASE("attention layout: samples start at elements, and the graph's extra ones are empty") {
  Gpu gpu;
  for (const auto& batch : batches()) {
    CAPTURE(batch.name);
    const std::int64_t in_graph = batch.samples() + 3, columns = 48;
    const auto [starts, wide_starts, key_starts, counts] = described(gpu, batch, in_graph, columns);
    for (std::int64_t n = 0; n <= in_graph; ++n) {
      const auto at = static_cast<std::size_t>(n);
      const bool real = n < batch.samples();
      CHECK(starts[at] == columns * (real ? batch.offsets[at] : batch.rows()));
      CHECK(wide_starts[at] == 2 * starts[at]);
      CHECK(key_starts[at] == 3 * starts[at]);
      if (n < in_graph) CHECK(counts[at] == (real ? batch.lengths[at] : 0));
    }
  }
}

TEST_CASE("attention layout: a seed depends only on seed, step, use, first row and first head") {
  Gpu gpu;
  const auto seed_of = [&](RandomStream random, std::vector<std::int64_t> rows, int first_head,
                           std::int64_t in_graph = 1) {
    const auto numbers = tensor_of(gpu, rows);
    Tensor<Gpu> seed(gpu, DType::i64, {4});
    (void)described(gpu, {"one", {0, 2}, {2}}, in_graph, 8,
                    {random, numbers.view().data<std::int64_t>(), first_head, 16,
                     seed.mut().data<std::int64_t>()});
    const auto written = seed.to_host<std::int64_t>(gpu);
    CHECK(written[2] == 0);
    return written[0];
  };
  const RandomStream random{7, 3, 5};
  const auto one = seed_of(random, {640, 641}, 0);
  CHECK(one == seed_of(random, {640, 9}, 0, 8));
  const auto at = tensor_of<std::int32_t>(gpu, {3});
  const auto* series_at = reinterpret_cast<const std::uint32_t*>(at.view().bytes());
  CHECK(one == seed_of({7, 0, 5, series_at}, {640, 641}, 0));
  const std::set<std::int64_t> all{one,
                                   seed_of({8, 3, 5}, {640, 641}, 0),
                                   seed_of({7, 4, 5}, {640, 641}, 0),
                                   seed_of({7, 3, 6}, {640, 641}, 0),
                                   seed_of(random, {641, 642}, 0),
                                   seed_of(random, {640, 641}, 8)};
  CHECK(all.size() == 6);
}

TEST_CASE("attention layout: statistics go to cuDNN's layout and back, with zero padding") {
  Gpu gpu;
  const std::int64_t heads = 3, length = 64;
  for (const auto& batch : batches()) {
    CAPTURE(batch.name);
    const auto offsets = tensor_of(gpu, batch.offsets), lengths = tensor_of(gpu, batch.lengths);
    const auto* starts = offsets.view().data<std::int32_t>();
    const auto* counts = lengths.view().data<std::int32_t>();
    const auto in_graph = batch.samples() + 2;
    const auto ours = random_on<float>(gpu, {heads, batch.rows()}, 1);
    Tensor<Gpu> theirs(gpu, DType::f32, {in_graph, heads, length});
    launch(gpu, grid_for(gpu, theirs.count()),
           StatisticsForCudnn{batch.rows(), heads, batch.samples(), in_graph, length, starts,
                              counts, ours.view().data<float>(), theirs.mut().data<float>()});
    const auto expected = ours.to_host<float>(gpu);
    const auto got = theirs.to_host<float>(gpu);
    std::size_t at = 0;
    for (std::int64_t n = 0; n < in_graph; ++n)
      for (std::int64_t head = 0; head < heads; ++head)
        for (std::int64_t i = 0; i < length; ++i, ++at) {
          const auto sample = static_cast<std::size_t>(n);
          const bool token = n < batch.samples() && i < batch.lengths[sample];
          const auto row = token ? head * batch.rows() + batch.offsets[sample] + i : 0;
          CHECK(got[at] == (token ? expected[static_cast<std::size_t>(row)] : 0.0f));
        }

    Tensor<Gpu> back(gpu, DType::f32, ours.shape());
    launch(gpu, grid_for(gpu, back.count()),
           StatisticsFromCudnn{batch.rows(), heads, batch.samples(), length, starts, counts,
                               theirs.view().data<float>(), back.mut().data<float>()});
    const auto returned = back.to_host<float>(gpu);
    for (std::int64_t head = 0; head < heads; ++head)
      batch.for_rows([&](std::int64_t row, bool token) {
        const auto where = static_cast<std::size_t>(head * batch.rows() + row);
        CHECK(returned[where] == (token ? expected[where] : 0.0f));
      });
  }
}

TEST_CASE_TEMPLATE("attention layout: padding is cleared, tokens stay", T, double, float, bf16,
                   f16) {
  Gpu gpu;
  for (const auto& batch : batches())
    for (const std::int64_t columns : {1, 40}) {
      CAPTURE(batch.name);
      const auto offsets = tensor_of(gpu, batch.offsets), lengths = tensor_of(gpu, batch.lengths);
      // The tensors are the first columns of two wider matrices.
      Tensor<Gpu> x[] = {random_on<T>(gpu, {batch.rows(), columns + 3}, 1),
                         random_on<T>(gpu, {batch.rows(), columns + 3}, 2)};
      const std::vector<double> before[] = {widened(gpu, x[0]), widened(gpu, x[1])};
      const auto first = [&](Tensor<Gpu>& of) {
        return View<Gpu>(of.mut().bytes(), of.dtype(), {batch.rows(), columns});
      };
      clear_padding<Gpu>(gpu, {offsets.view(), lengths.view(), {}, 0}, {first(x[0]), first(x[1])},
                         columns + 3);
      for (const int which : {0, 1}) {
        const auto after = widened(gpu, x[which]);
        batch.for_rows([&](std::int64_t row, bool token) {
          for (std::int64_t column = 0; column < columns + 3; ++column) {
            const auto at = static_cast<std::size_t>(row * (columns + 3) + column);
            CHECK(after[at] == (token || column >= columns ? before[which][at] : 0.0));
          }
        });
      }
    }
}

TEST_CASE("attention layout: dense copies of columns of one matrix, whose gradients go back") {
  Gpu gpu;
  constexpr std::int64_t rows = 11, columns = 6;
  const auto all = random_on<bf16>(gpu, {rows, 3 * columns}, 1);
  auto gradients = random_on<bf16>(gpu, {rows, 3 * columns}, 2);
  const auto part = [&](auto matrix, int which) {
    return decltype(matrix)(matrix.bytes() + 2 * which * columns, DType::bf16, {rows, columns});
  };
  const auto in = all.view();
  const auto out = gradients.mut();
  on_dense_copies<Gpu>(gpu, {part(in, 0), part(in, 1), part(in, 2)},
                       {part(out, 2), part(out, 0), part(out, 1)}, 3 * columns,
                       [&](auto q, auto k, auto v, auto dq, auto dk, auto dv) {
                         gpu.copy(dk.bytes(), q.bytes(), q.size_bytes());
                         gpu.copy(dv.bytes(), k.bytes(), k.size_bytes());
                         gpu.copy(dq.bytes(), v.bytes(), v.size_bytes());
                       });
  CHECK(widened(gpu, gradients) == widened(gpu, all));
}
