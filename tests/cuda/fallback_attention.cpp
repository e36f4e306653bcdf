// Attention, with the same dropped probabilities as on the Cpu.
#include <dhp/cpu/attention.hpp>
#include <dhp/cpu/rows.hpp>
#include <dhp/cuda/attention_layout.hpp>
#include <dhp/cuda/fallback_attention.hpp>
#include <tests/cuda/gpu.hpp>
#include <tests/support/thirds.hpp>

namespace {

struct Case {
  std::vector<std::int32_t> lengths;
  std::vector<std::int32_t> padding;  ///< rows behind each sample
  int heads = 2;
  int size = 8;
  double dropout = 0;
  int first_head = 0;
  int total_heads = 2;
  bool joined = false;  ///< q, k, v are columns of one matrix
  bool apart = false;   ///< which the GPU's gradients copy
};

Results run(auto& side, const Case& with) {
  std::vector<std::int32_t> offsets{0};
  for (std::size_t n = 0; n < with.lengths.size(); ++n)
    offsets.push_back(offsets.back() + with.lengths[n] + with.padding[n]);
  const std::int64_t rows = offsets.back();
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(rows));
  std::iota(numbers.begin(), numbers.end(), 1000);
  const auto count = static_cast<std::int64_t>(with.lengths.size());
  const auto starts = side.tensor({count + 1}, offsets),
             lengths = side.tensor({count}, with.lengths), each_row = side.tensor({rows}, numbers);
  const Sequences<decltype(side.dev)> sequences{
      starts, lengths, each_row, *std::max_element(with.lengths.begin(), with.lengths.end())};
  const AttentionOptions options{.heads = with.heads,
                                 .first_head = with.first_head,
                                 .total_heads = with.total_heads,
                                 .dropout = with.dropout,
                                 .random = {.seed = 5, .series = 3, .use = 9},
                                 .row_stride = with.joined ? 3 * with.heads * with.size : 0};
  const Shape shape{rows, with.heads * with.size};
  const auto q = side.elements(shape, 1), k = side.elements(shape, 2), v = side.elements(shape, 3),
             dy = side.elements(shape, 4);
  auto y = side.fresh(shape), dq = side.fresh(shape), dk = side.fresh(shape),
       dv = side.fresh(shape), logsumexp = side.fresh_sums({with.heads, rows});
  if (with.joined) {
    Thirds<decltype(side.dev)> in(side.dev, q.dtype(), shape), out(side.dev, q.dtype(), shape);
    in.put(side.dev, 0, q);
    in.put(side.dev, 1, k);
    in.put(side.dev, 2, v);
    attention_forward(side.dev, in.at(0), in.at(1), in.at(2), sequences, options, y.mut(),
                      logsumexp.mut());
    auto strided = options;
    const auto backward = [&](auto in_q, auto in_k, auto in_v, auto to_q, auto to_k, auto to_v) {
      attention_backward(side.dev, dy, in_q, in_k, in_v, y, logsumexp, sequences, strided, to_q,
                         to_k, to_v);
    };
    using Dev = std::remove_reference_t<decltype(side.dev)>;
    if (!with.apart || std::is_same_v<Dev, Cpu>) {
      backward(in.at(0), in.at(1), in.at(2), out.at(0), out.at(1), out.at(2));
    } else if constexpr (!std::is_same_v<Dev, Cpu>) {
      strided.row_stride = 0;
      detail::cuda::on_matrices_apart<Dev>(side.dev, {in.at(0), in.at(1), in.at(2)},
                                           {out.at(0), out.at(1), out.at(2)}, options.row_stride,
                                           backward);
    }
    const auto taken = [&](int which) { return side.values(out.take(side.dev, which).view()); };
    return {side.values(y.view()), taken(0), taken(1), taken(2), side.values(logsumexp.view())};
  }
  attention_forward(side.dev, q, k, v, sequences, options, y.mut(), logsumexp.mut());
  attention_backward(side.dev, dy, q, k, v, y, logsumexp, sequences, options, dq.mut(), dk.mut(),
                     dv.mut());
  return side.results(y, dq, dk, dv, logsumexp);
}

template <class T>
void same_as_cpu(const Case& with) {
  INFO("with.size ", with.size, " with.dropout ", with.dropout);
  const auto [got, right] = with_oracle<T>([&](auto& side) { return run(side, with); });
  for (std::size_t at = 0; at < 4; ++at) {
    CAPTURE(at);
    CHECK(relative_error(got[at], right[at]) < tolerance<T> * (is_16_bit<T> ? 2 : 4));
  }
  CHECK(relative_error(got[4], right[4]) < 1e-6);
}

}  // namespace

TEST_CASE_TEMPLATE("plain attention on ragged samples", T, double, float, bf16, f16) {
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
  same_as_cpu<float>({.lengths = {9, 34}, .padding = {0, 2}, .dropout = 0.25, .joined = true});
  same_as_cpu<bf16>({.lengths = {9, 34}, .padding = {0, 2}, .joined = true, .apart = true});
}

TEST_CASE("plain attention: a head too wide is refused in a sentence") {
  Side<float, Gpu> side;
  const Case with{.lengths = {2}, .padding = {0}, .heads = 1, .size = 300, .total_heads = 1};
  CHECK(message_of([&] { (void)run(side, with); }) ==
        "attention: heads of 300 columns; on a GPU they have at most 256");
}

#ifndef __CUDACC__
TEST_CASE("plain attention: a head too wide for the GPU's shared memory is refused in a sentence") {
  const auto says = [&]<class T>(int size, Tag<T>) {
    Side<T, Gpu> side;
    side.dev.shared_bytes = 166912;  // an A100's
    const Case with{.lengths = {2}, .padding = {0}, .heads = 1, .size = size, .total_heads = 1};
    return message_of([&] { (void)run(side, with); });
  };
  CHECK(says(256, Tag<double>()) ==
        "attention: heads of 256 columns, with sums in f64, need 168576 bytes of shared memory, "
        "and this GPU has 166912 for a block; a narrower type (fp32, say) needs less");
  CHECK(says(240, Tag<double>()) == "no error");
  CHECK(says(256, Tag<float>()) == "no error");
  Gpu gpu;
  gpu.shared_bytes = 1 << 10;
  const detail::cuda::Grid grid{.blocks = 1, .threads = 32, .shared_bytes = 1040};
  CHECK(message_of([&] { launch(gpu, grid, [](auto&) {}); }) ==
        "the threads of a kernel's block need 1040 bytes of shared memory, and this GPU has 1024 "
        "for a block; a narrower type (fp32, say) needs less");
  CHECK(gpu.launches == 0);
}
#endif
