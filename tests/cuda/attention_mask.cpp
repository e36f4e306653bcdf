// The mask for cuDNN's attention drops what the Cpu's attention drops. Where values are the identity, y[i, j] is the
// probability (i, j), or 0 if it was dropped.
#include <dhp/cpu/attention.hpp>
#include <dhp/cuda/attention_mask.hpp>
#include <tests/cuda/gpu.hpp>

namespace {

struct Batch {
  const char* name;
  std::vector<std::int32_t> offsets, lengths;
  std::int64_t max_length;
  std::int64_t graph_samples;
  [[nodiscard]] std::int64_t rows() const { return offsets.back(); }
  [[nodiscard]] std::int64_t samples() const { return static_cast<std::int64_t>(lengths.size()); }
};

// Where probabilities are numbered from: in the middle of a Philox block where max_length is odd.
std::vector<Batch> batches() {
  return {{"packed", {0, 5, 6, 70}, {5, 1, 64}, 64, 4},
          {"padded", {0, 17, 34, 51}, {17, 3, 1}, 17, 3},
          {"with empty samples", {0, 0, 4, 4, 4, 9}, {0, 3, 0, 0, 5}, 7, 8},
          {"several blocks per head", {0, 130}, {127}, 130, 1},
          {"several blocks per head, whole Philox blocks", {0, 140, 150}, {132, 9}, 132, 3},
          {"all padding", {0, 6}, {0}, 66, 2}};
}

// body(sequences) with the batch on a device.
auto with_sequences(auto& side, const Batch& batch, const auto& body) {
  // A packed row's number says where it stood in the whole batch.
  std::vector<std::int64_t> all(static_cast<std::size_t>(batch.rows()));
  std::iota(all.begin(), all.end(), (std::int64_t{1} << 33) + 5);
  const auto offsets = side.tensor({batch.samples() + 1}, batch.offsets),
             lengths = side.tensor({batch.samples()}, batch.lengths),
             numbers = side.tensor({batch.rows()}, all);
  return body(Sequences<decltype(side.dev)>{offsets, lengths, numbers, batch.max_length});
}

AttentionOptions options_for(double dropout) {
  return {.heads = 2,
          .first_head = 3,
          .total_heads = 6,
          .dropout = dropout,
          .random = {.seed = 0x123456789abcdefu, .series = 3, .use = 5}};
}

/// [graph_samples, heads, length, length]
std::vector<double> kept_by_cpu(const Batch& batch, const AttentionOptions& options,
                                std::int64_t length) {
  Side<float, Cpu> side;
  const auto size = batch.max_length, columns = options.heads * size;
  const Shape shape{batch.rows(), columns};
  // body(head, i, j, the element of column j in row i of the head)
  const auto for_all = [&](const auto& body) {
    for (std::size_t n = 0; n < batch.lengths.size(); ++n)
      for (int head = 0; head < options.heads; ++head)
        for (std::int64_t i = 0; i < batch.lengths[n]; ++i)
          for (std::int64_t j = 0; j < batch.lengths[n]; ++j)
            body(static_cast<std::int64_t>(n) * options.heads + head, i, j,
                 static_cast<std::size_t>((batch.offsets[n] + i) * columns + head * size + j));
  };
  std::vector<float> identity(static_cast<std::size_t>(shape.count()), 0.0f);
  for_all([&](auto, auto i, auto j, auto at) { identity[at] = i == j ? 1 : 0; });
  auto y = side.fresh(shape), sums = side.fresh({options.heads, batch.rows()});
  with_sequences(side, batch, [&](const auto& sequences) {
    attention_forward(side.dev, side.elements(shape, 1), side.elements(shape, 2),
                      side.tensor(shape, identity), sequences, options, y.mut(), sums.mut());
  });
  const auto probabilities = side.values(y.view());
  std::vector<double> kept(
      static_cast<std::size_t>(batch.graph_samples * options.heads * length * length), 0.0);
  for_all([&](auto head, auto i, auto j, auto at) {
    kept[static_cast<std::size_t>((head * length + i) * length + j)] =
        probabilities[at] != 0 ? 1 : 0;
  });
  return kept;
}

template <class T>
std::vector<double> mask_of(Side<T, Gpu>& side, const Batch& batch, const AttentionOptions& options,
                            std::int64_t length) {
  const auto q = side.fresh({batch.rows(), options.heads * 8});
  auto mask = side.fresh({batch.graph_samples, options.heads, length, length});
  with_sequences(side, batch, [&](const auto& sequences) {
    detail::cuda::attention_mask(
        side.dev, detail::cuda::attention_place<Gpu>(q, sequences, options), batch.samples(),
        batch.graph_samples, length, mask.mut().template data<T>());
  });
  return side.values(mask.view());
}

}  // namespace

TEST_CASE_TEMPLATE("the mask is what the Cpu's attention keeps", T, bf16, f16) {
  Side<T, Gpu> side;
  for (const auto& batch : batches())
    for (const double dropout : {0.1, 0.5, 1 - 0x1p-10}) {
      INFO("batch.name ", batch.name, " dropout ", dropout);
      const auto length = (batch.max_length + 63) / 64 * 64;
      const auto options = options_for(dropout);
      CHECK(mask_of(side, batch, options, length) == kept_by_cpu(batch, options, length));
    }
}

TEST_CASE("the mask of a step that is read on the device") {
  Side<bf16, Gpu> side;
  const auto batch = batches().front();
  const auto step = side.tensor({1}, std::vector<std::int32_t>{7});
  auto read = options_for(0.5), known = read;
  read.random.series_at = reinterpret_cast<const std::uint32_t*>(step.view().bytes());
  known.random.series = 7;
  CHECK(mask_of(side, batch, read, 64) == kept_by_cpu(batch, known, 64));
}

TEST_CASE("a mask that does not fit is refused in a sentence") {
  Side<f16, Gpu> side;
  const auto batch = batches().front();
  CHECK(message_of([&] { (void)mask_of(side, batch, options_for(0.5), 60); }) ==
        "attention: a mask of 4 samples of 60 does not fit 3 samples of up to 64; the length is a "
        "multiple of 8 and at most 65536");
}

TEST_CASE("how large a mask may be") {
  // BERT-large on an H200: 256 MiB of 140 GB. On a GPU of 4 GiB they are just a sixteenth.
  const auto bytes = detail::cuda::attention_mask_bytes(32, 16, 512);
  CHECK(bytes == 256 << 20);
  CHECK(detail::cuda::attention_scratch_fits(bytes, 140'000'000'000));
  CHECK(detail::cuda::attention_scratch_fits(bytes, std::size_t{4} << 30));
  CHECK_FALSE(detail::cuda::attention_scratch_fits(bytes, (std::size_t{4} << 30) - 1));
  CHECK_FALSE(detail::cuda::attention_scratch_fits(detail::cuda::attention_mask_bytes(512, 16, 512),
                                                   std::size_t{1} << 40));
}
