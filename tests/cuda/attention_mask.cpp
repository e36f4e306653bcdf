// The mask for a library's attention: bit for bit what the Cpu's attention drops, which is read off its output for
// values that are the identity: y[i, j] is then the probability (i, j), 0 where it was dropped.
#include <dhp/cpu/attention.hpp>
#include <dhp/cuda/attention_mask.hpp>
#include <tests/cuda/gpu.hpp>

#include <doctest/doctest.h>

#include <numeric>

using namespace dhp;
using namespace tests;

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
          {"more than a tile", {0, 130}, {127}, 130, 1},
          {"all padding", {0, 6}, {0}, 66, 2}};
}

template <class Dev>
struct Tensors {
  Tensor<Dev> offsets, lengths, numbers;
  Tensors(Dev& dev, const Batch& batch)
      : offsets(Tensor<Dev>::from_host(dev, {batch.samples() + 1}, batch.offsets)),
        lengths(Tensor<Dev>::from_host(dev, {batch.samples()}, batch.lengths)) {
    // A packed row's number says where it stood in the whole batch.
    std::vector<std::int64_t> all(static_cast<std::size_t>(batch.rows()));
    std::iota(all.begin(), all.end(), (std::int64_t{1} << 33) + 5);
    numbers = Tensor<Dev>::from_host(dev, {batch.rows()}, all);
  }
  [[nodiscard]] Sequences<Dev> view(const Batch& batch) const {
    return {offsets.view(), lengths.view(), numbers.view(), batch.max_length};
  }
};

AttentionOptions options_for(double dropout) {
  return {.heads = 2,
          .first_head = 3,
          .total_heads = 6,
          .dropout = dropout,
          .random = {.seed = 0x123456789abcdefu, .step = 3, .use = 5}};
}

/// [graph_samples, heads, length, length]
std::vector<double> kept_by_cpu(const Batch& batch, const AttentionOptions& options,
                                std::int64_t length) {
  Cpu cpu;
  const Tensors<Cpu> tensors(cpu, batch);
  const auto size = batch.max_length, columns = options.heads * size;
  std::vector<float> identity(static_cast<std::size_t>(batch.rows() * columns), 0.0f);
  for (std::int64_t n = 0; n < batch.samples(); ++n)
    for (std::int64_t j = 0; j < batch.lengths[static_cast<std::size_t>(n)]; ++j)
      for (int head = 0; head < options.heads; ++head)
        identity[static_cast<std::size_t>(
            (batch.offsets[static_cast<std::size_t>(n)] + j) * columns + head * size + j)] = 1;
  const Shape shape{batch.rows(), columns};
  const auto q = random_tensor<float>(cpu, shape, 1), k = random_tensor<float>(cpu, shape, 2);
  const auto v = Tensor<Cpu>::from_host(cpu, shape, identity);
  Tensor<Cpu> y(cpu, DType::f32, shape), sums(cpu, DType::f32, {options.heads, batch.rows()});
  attention_forward(cpu, q, k, v, tensors.view(batch), options, y.mut(), sums.mut());
  const auto probabilities = widened(y);
  std::vector<double> kept(
      static_cast<std::size_t>(batch.graph_samples * options.heads * length * length), 0.0);
  for (std::int64_t n = 0; n < batch.samples(); ++n)
    for (int head = 0; head < options.heads; ++head)
      for (std::int64_t i = 0; i < batch.lengths[static_cast<std::size_t>(n)]; ++i)
        for (std::int64_t j = 0; j < batch.lengths[static_cast<std::size_t>(n)]; ++j) {
          const auto row = batch.offsets[static_cast<std::size_t>(n)] + i;
          const auto from = row * columns + head * size + j;
          const auto to = ((n * options.heads + head) * length + i) * length + j;
          kept[static_cast<std::size_t>(to)] =
              probabilities[static_cast<std::size_t>(from)] != 0 ? 1 : 0;
        }
  return kept;
}

template <class T>
std::vector<double> mask_of(Gpu& gpu, const Batch& batch, const AttentionOptions& options,
                            std::int64_t length) {
  const Tensors<Gpu> tensors(gpu, batch);
  const Tensor<Gpu> q(gpu, dtype_of<T>(), {batch.rows(), options.heads * 8});
  const auto place = cuda::attention_place<Gpu>(q, tensors.view(batch), options);
  Tensor<Gpu> mask(gpu, dtype_of<T>(), {batch.graph_samples, options.heads, length, length});
  cuda::attention_mask(gpu, place, batch.samples(), batch.graph_samples, length,
                       mask.mut().template data<T>());
  return widened(gpu, mask);
}

}  // namespace

TEST_CASE_TEMPLATE("the mask is what the Cpu's attention keeps", T, bf16, f16) {
  Gpu gpu;
  for (const auto& batch : batches())
    for (const double dropout : {0.1, 0.5, 1 - 0x1p-10}) {
      CAPTURE(batch.name);
      CAPTURE(dropout);
      const auto length = (batch.max_length + 63) / 64 * 64;
      const auto options = options_for(dropout);
      CHECK(mask_of<T>(gpu, batch, options, length) == kept_by_cpu(batch, options, length));
    }
}

TEST_CASE("the mask of a step that is read on the device") {
  Gpu gpu;
  const auto batch = batches().front();
  const auto step = Tensor<Gpu>::from_host(gpu, {1}, std::vector<std::int32_t>{7});
  auto read = options_for(0.5);
  read.random.step_at = reinterpret_cast<const std::uint32_t*>(step.view().bytes());
  auto known = options_for(0.5);
  known.random.step = 7;
  CHECK(mask_of<bf16>(gpu, batch, read, 64) == kept_by_cpu(batch, known, 64));
}

TEST_CASE("four words of a stream, wherever they start") {
  const RandomStream random{.seed = 9, .step = 2, .use = 1};
  for (std::uint64_t first = 0; first < 12; ++first) {
    const auto words = cuda::four_words(random, first);
    for (std::uint64_t at = 0; at < 4; ++at) CHECK(words[at] == random.bits(first + at));
  }
}

TEST_CASE("a mask that does not fit is refused in a sentence") {
  Gpu gpu;
  const auto batch = batches().front();
  CHECK(message_of([&] { (void)mask_of<f16>(gpu, batch, options_for(0.5), 60); }) ==
        "attention: a mask of 4 samples of 60 does not fit 3 samples of up to 64; the length is a "
        "multiple of 8");
}

TEST_CASE("how large a mask may be") {
  // BERT-large on an H200: 256 MiB of 140 GB. On a GPU of 4 GiB they are just a sixteenth.
  const auto bytes = cuda::attention_mask_bytes(32, 16, 512);
  CHECK(bytes == 256 << 20);
  CHECK(cuda::attention_mask_fits(bytes, 140'000'000'000));
  CHECK(cuda::attention_mask_fits(bytes, std::size_t{4} << 30));
  CHECK_FALSE(cuda::attention_mask_fits(bytes, (std::size_t{4} << 30) - 1));
  CHECK_FALSE(
      cuda::attention_mask_fits(cuda::attention_mask_bytes(512, 16, 512), std::size_t{1} << 40));
}
