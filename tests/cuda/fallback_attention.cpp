// Attention: beside the Cpu in double from the same rounded inputs, and the very same dropped probabilities.
#include <dhp/cpu/attention.hpp>
#include <dhp/cuda/fallback_attention.hpp>
#include <tests/cuda/gpu.hpp>

#include <doctest/doctest.h>

#include <numeric>

using namespace dhp;
using namespace tests;

namespace {

struct Case {
  std::vector<std::int32_t> lengths;
  std::vector<std::int32_t> padding;  ///< rows behind each sample
  int heads = 2;
  int size = 8;
  double dropout = 0;
  int first_head = 0;
  int total_heads = 2;
};
struct Found {
  std::vector<double> y, logsumexp, dq, dk, dv;
};

template <class Dev>
struct Tensors {
  Tensor<Dev> offsets, lengths, numbers;
  [[nodiscard]] Sequences<Dev> view(std::int64_t max_length) const {
    return {offsets.view(), lengths.view(), numbers.view(), max_length};
  }
};

template <class Dev>
Found run(Dev& dev, const Case& with, const Tensor<Dev>& q, const Tensor<Dev>& k,
          const Tensor<Dev>& v, const Tensor<Dev>& dy) {
  std::vector<std::int32_t> offsets{0};
  for (std::size_t n = 0; n < with.lengths.size(); ++n)
    offsets.push_back(offsets.back() + with.lengths[n] + with.padding[n]);
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(offsets.back()));
  std::iota(numbers.begin(), numbers.end(), 1000);
  const auto count = static_cast<std::int64_t>(with.lengths.size());
  const Tensors<Dev> tensors{Tensor<Dev>::from_host(dev, {count + 1}, offsets),
                             Tensor<Dev>::from_host(dev, {count}, with.lengths),
                             Tensor<Dev>::from_host(dev, {q.rows()}, numbers)};
  const auto sequences = tensors.view(*std::max_element(with.lengths.begin(), with.lengths.end()));
  const AttentionOptions options{.heads = with.heads,
                                 .first_head = with.first_head,
                                 .total_heads = with.total_heads,
                                 .dropout = with.dropout,
                                 .random = {.seed = 5, .step = 3, .use = 9}};
  const auto type = q.dtype();
  Tensor<Dev> y(dev, type, q.shape()), dq(dev, type, q.shape()), dk(dev, type, q.shape());
  Tensor<Dev> dv(dev, type, q.shape());
  Tensor<Dev> logsumexp(dev, accumulation_type(type), {with.heads, q.rows()});
  attention_forward(dev, q, k, v, sequences, options, y.mut(), logsumexp.mut());
  attention_backward(dev, dy, q, k, v, y, logsumexp, sequences, options, dq.mut(), dk.mut(),
                     dv.mut());
  const auto wide = [&](const Tensor<Dev>& tensor) {
    if constexpr (std::is_same_v<Dev, Cpu>) return widened(tensor);
    else return widened(dev, tensor);
  };
  return {wide(y), wide(logsumexp), wide(dq), wide(dk), wide(dv)};
}

template <class T>
void same_as_cpu(const Case& with) {
  CAPTURE(with.size);
  CAPTURE(with.dropout);
  Gpu gpu;
  Cpu cpu;
  const auto rows = std::accumulate(with.lengths.begin(), with.lengths.end(), 0) +
                    std::accumulate(with.padding.begin(), with.padding.end(), 0);
  const Shape shape{rows, with.heads * with.size};
  const auto found = run(gpu, with, random_on<T>(gpu, shape, 1), random_on<T>(gpu, shape, 2),
                         random_on<T>(gpu, shape, 3), random_on<T>(gpu, shape, 4));
  const auto expected = run(cpu, with, oracle_of<T>(cpu, shape, 1), oracle_of<T>(cpu, shape, 2),
                            oracle_of<T>(cpu, shape, 3), oracle_of<T>(cpu, shape, 4));
  const double allowed = tolerance<T> * (is_16_bit<T> ? 2 : 4);
  CHECK(relative_error(found.y, expected.y) < allowed);
  CHECK(relative_error(found.logsumexp, expected.logsumexp) < 1e-6);
  CHECK(relative_error(found.dq, expected.dq) < allowed);
  CHECK(relative_error(found.dk, expected.dk) < allowed);
  CHECK(relative_error(found.dv, expected.dv) < allowed);
}

}  // namespace

TEST_CASE_TEMPLATE("plain attention agrees with the Cpu on ragged samples", T, double, float, bf16,
                   f16) {
  same_as_cpu<T>({.lengths = {5, 0, 1, 33, 32, 31}, .padding = {3, 2, 0, 0, 1, 9}});
  same_as_cpu<T>({.lengths = {40, 7}, .padding = {0, 1}, .dropout = 0.25});
}

TEST_CASE("plain attention: sizes of heads, parts of the heads, much padding") {
  same_as_cpu<float>({.lengths = {9}, .padding = {0}, .heads = 1, .size = 1, .total_heads = 1});
  same_as_cpu<float>({.lengths = {9, 3}, .padding = {0, 0}, .heads = 2, .size = 33});
  same_as_cpu<float>({.lengths = {17}, .padding = {1}, .heads = 1, .size = 64, .total_heads = 1});
  same_as_cpu<double>({.lengths = {3}, .padding = {0}, .heads = 1, .size = 256, .total_heads = 1});
  // The second half of eight heads numbers its probabilities as the whole does.
  same_as_cpu<double>({.lengths = {6, 4},
                       .padding = {1, 0},
                       .heads = 4,
                       .size = 3,
                       .dropout = 0.5,
                       .first_head = 4,
                       .total_heads = 8});
  same_as_cpu<double>({.lengths = {2, 3}, .padding = {40, 0}});
}

TEST_CASE("plain attention: a head too wide is refused in a sentence") {
  Gpu gpu;
  const auto q = random_on<float>(gpu, {2, 300}, 1);
  Case with{.lengths = {2}, .padding = {0}, .heads = 1, .total_heads = 1};
  CHECK(message_of([&] { (void)run(gpu, with, q, q, q, q); }) ==
        "attention: heads of 300 columns; on a GPU they have at most 256");
}

#ifndef __CUDACC__
TEST_CASE("plain attention: a head too wide for the GPU's shared memory is refused in a sentence") {
  Gpu gpu;
  gpu.shared_bytes = 166912;  // an A100's
  const Case with{.lengths = {2}, .padding = {0}, .heads = 1, .total_heads = 1};
  const auto says = [&]<class T>(std::int64_t size, Tag<T>) {
    const auto q = random_on<T>(gpu, {2, size}, 1);
    return message_of([&] { (void)run(gpu, with, q, q, q, q); });
  };
  CHECK(says(256, Tag<double>()) ==
        "attention: heads of 256 columns, with sums in f64, need 168576 bytes of shared memory, "
        "and this GPU has 166912 for a block; a narrower type (fp32, say) needs less");
  CHECK(says(240, Tag<double>()) == "no error");
  CHECK(says(256, Tag<float>()) == "no error");
  gpu.shared_bytes = 1 << 10;
  const auto launches = gpu.launches;
  const cuda::Grid grid{.blocks = 1, .threads = 32, .shared_bytes = 1040};
  CHECK(message_of([&] { launch(gpu, grid, [](auto&) {}); }) ==
        "the threads of a kernel's block need 1040 bytes of shared memory, and this GPU has 1024 "
        "for a block; a narrower type (fp32, say) needs less");
  CHECK(gpu.launches == launches);
}
#endif
