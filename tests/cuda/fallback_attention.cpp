// Attention agrees with the Cpu's, with the same dropped probabilities.
#include <dhp/cpu/attention.hpp>
#include <dhp/cpu/rows.hpp>
#include <dhp/cuda/attention_layout.hpp>
#include <dhp/cuda/fallback_attention.hpp>
#include <tests/cuda/gpu.hpp>
#include <tests/support/attention.hpp>

namespace {

/// Attention of one sample without padding, from matrices of [length, heads * size].
template <class T>
struct OneSample {
  static constexpr int first_row = 1000;
  int length, heads, size, first_head, total_heads;
  double dropout;
  bool reads_step = false;  // from device memory, for recorded steps

  [[nodiscard]] RandomStream stream() const { return {.seed = 5, .series = 3, .use = 9}; }
  [[nodiscard]] Shape shape() const { return {length, heads * size}; }
  /// Calls value(row, column of the head).
  [[nodiscard]] std::vector<T> values(const auto& value) const {
    std::vector<T> all;
    for (int row = 0; row < length; ++row)
      for (int column = 0; column < heads * size; ++column)
        all.push_back(T(value(row, column % size)));
    return all;
  }
  [[nodiscard]] std::vector<T> random(std::uint32_t use) const {
    Cpu cpu;
    return random_tensor<T>(cpu, shape(), use).template to_host<T>(cpu);
  }
  /// Returns y, dq, dk, dv and logsumexp.
  Results operator()(const std::vector<T>& q, const std::vector<T>& k, const std::vector<T>& v,
                     const std::vector<T>& dy) const {
    Side<T, Gpu> side;
    const Samples sequences(side.dev, {0, length}, {length}, first_row);
    AttentionOptions options{.heads = heads,
                             .first_head = first_head,
                             .total_heads = total_heads,
                             .dropout = dropout,
                             .random = stream()};
    const auto step = side.tensor({1}, std::vector<std::int32_t>{3});
    if (reads_step) {
      options.random.series = 0;
      options.random.series_at = reinterpret_cast<const std::uint32_t*>(step.view().bytes());
    }
    const auto there = [&](const std::vector<T>& matrix) { return side.tensor(shape(), matrix); };
    return attention_results(side.dev, sequences, options, there(q), there(k), there(v), there(dy));
  }
};

}  // namespace

TEST_CASE_TEMPLATE("fallback attention agrees with the Cpu for samples of unequal length", T,
                   double, float, bf16, f16) {
  check_attention<T, Gpu>({.lengths = {5, 0, 1, 33, 32, 31}, .padding = {3, 2, 0, 0, 1, 9}});
  check_attention<T, Gpu>({.lengths = {40, 7}, .padding = {0, 1}, .dropout = 0.25});
}

TEST_CASE("fallback attention agrees for any head size, some of the heads, much padding") {
  check_attention<float, Gpu>({.lengths = {9}, .heads = 1, .size = 1, .total_heads = 1});
  check_attention<float, Gpu>({.lengths = {9, 3}, .heads = 2, .size = 33});
  check_attention<float, Gpu>(
      {.lengths = {17}, .padding = {1}, .heads = 1, .size = 64, .total_heads = 1});
  check_attention<double, Gpu>({.lengths = {3}, .heads = 1, .size = 256, .total_heads = 1});
  // Heads 4 to 7 of eight, computed alone, drop the same probabilities as beside the others.
  check_attention<double, Gpu>({.lengths = {6, 4},
                                .padding = {1, 0},
                                .heads = 4,
                                .size = 3,
                                .dropout = 0.5,
                                .first_head = 4,
                                .total_heads = 8});
  check_attention<double, Gpu>({.lengths = {2, 3}, .padding = {40, 0}});
  check_attention<float, Gpu>(
      {.lengths = {9, 34}, .padding = {0, 2}, .dropout = 0.25, .joined = true});
}

TEST_CASE_TEMPLATE("fallback attention agrees in 16 bits for heads that are not whole packs", T,
                   bf16, f16) {
  check_attention<T, Gpu>(
      {.lengths = {9, 0, 33}, .padding = {3, 2, 0}, .size = 9, .dropout = 0.25});
}

TEST_CASE_TEMPLATE("attention on tensor cores agrees with the Cpu", T, bf16, f16) {
  // Samples end inside a tile or at its end, or have no token or one. Some padding is longer than a block's rows.
  AttentionCase with{
      .lengths = {5, 0, 1, 65, 64, 131}, .padding = {140, 2, 0, 0, 1, 9}, .size = 64};
  check_attention<T, Gpu>(with);
  with.dropout = 0.25;
  check_attention<T, Gpu>(with);
  with.lengths = {40, 3, 0, 72};  // lengths are multiples of 4: lanes share random numbers
  with.padding = {1, 70, 2, 0};
  for (const auto& [size, dropout] :
       {std::pair{8, 0.25}, {40, 0.0}, {64, 0.25}, {128, 0.25}, {136, 0.0}, {256, 0.25}}) {
    with.size = size;
    with.dropout = dropout;
    check_attention<T, Gpu>(with);
    with.joined = true;
  }
  check_attention<T, Gpu>({.lengths = {70, 9},
                           .heads = 2,
                           .size = 16,
                           .dropout = 0.5,
                           .first_head = 4,
                           .total_heads = 8});
}

TEST_CASE_TEMPLATE("causal attention and shared key heads agree with the Cpu", T, double, float,
                   bf16, f16) {
  // In 16 bits, heads of 8 columns run on tensor cores, heads of 9 columns do not.
  for (const auto& [key_heads, causal] : {std::pair{0, true}, {2, false}, {1, true}})
    for (const auto& [size, dropout] : {std::pair{8, 0.25}, {9, 0.0}}) {
      CAPTURE(key_heads);
      check_attention<T, Gpu>({.lengths = {5, 0, 1, 65, 33},
                               .padding = {9, 2, 0, 1, 0},
                               .heads = 4,
                               .size = size,
                               .dropout = dropout,
                               .total_heads = 4,
                               .key_heads = key_heads,
                               .causal = causal});
    }
}

TEST_CASE("causal attention on tensor cores agrees for each tile width and joined q, k, v") {
  for (const int size : {64, 128, 256})
    check_attention<bf16, Gpu>({.lengths = {131, 16},
                                .padding = {40, 1},
                                .size = size,
                                .dropout = size == 256 ? 0.25 : 0,
                                .key_heads = 1,
                                .causal = true});
  check_attention<f16, Gpu>({.lengths = {70, 9},
                             .padding = {0, 3},
                             .size = 64,
                             .dropout = 0.25,
                             .joined = true,
                             .causal = true});
}

TEST_CASE("tensor cores are used for aligned heads of whole packs") {
  alignas(16) const bf16 elements[16] = {};
  detail::cuda::AttentionPlace place{};
  const auto fits = [&](int size, std::int64_t stride, const bf16* at) {
    place.size = size;
    place.stride = stride;
    return detail::cuda::flash_fits<bf16>(place, elements, at);
  };
  CHECK(fits(40, 80, elements + 8));
  CHECK(!fits(44, 80, elements));
  CHECK(!fits(40, 84, elements));
  CHECK(!fits(40, 80, elements + 1));
  place.key_stride = 44;
  CHECK(!fits(40, 80, elements));
}

TEST_CASE_TEMPLATE("attention on tensor cores: the dropout mask is right for every element", T,
                   bf16, f16) {
  for (const auto& [length, size] : {std::pair{56, 64}, {61, 64}, {104, 128}, {99, 256}}) {
    CAPTURE(length);
    CAPTURE(size);
    const OneSample<T> sample{length, 2, size, 1, 3, 0.25};
    const auto unit =
                   sample.values([](int row, int column) { return row == column ? 1.0f : 0.0f; }),
               ones = sample.values([](int, int) { return 1.0f; }), some = sample.random(1);
    const auto of_ones = sample(some, unit, unit, ones), of_unit = sample(some, unit, unit, unit);
    const auto &y = of_ones[0], &dq = of_ones[1], &dv = of_unit[3];
    const RandomStream random = sample.stream();
    int wrong = 0, dropped = 0;
    for (int head = 0; head < 2; ++head)
      for (int query = 0; query < length; ++query)
        for (int key = 0; key < length; ++key) {
          const auto number = ((sample.first_row + query) * 3 + 1 + head) * length + key;
          const bool keeps = random.short_bits(static_cast<std::uint64_t>(number)) >= 0x4000;
          const auto of = [&](const std::vector<double>& matrix, int row, int column) {
            return matrix[static_cast<std::size_t>((row * 2 + head) * size + column)];
          };
          // A dropped probability adds no value to y and dv, and lowers its score's gradient.
          wrong += keeps != (of(y, query, key) != 0);
          wrong += keeps != (of(dv, key, query) != 0);
          wrong += keeps != (of(dq, query, key) > 0);
          dropped += keeps ? 0 : 1;
        }
    CHECK(wrong == 0);
    CHECK(dropped > length * length / 3);
  }
}

TEST_CASE("attention on tensor cores: a head's bits do not depend on other heads or on the run") {
  const int size = 64, length = 70;
  const OneSample<bf16> whole{length, 4, size, 0, 4, 0.1};
  const std::vector<std::vector<bf16>> in{whole.random(1), whole.random(2), whole.random(3),
                                          whole.random(4)};
  const auto all = whole(in[0], in[1], in[2], in[3]);
  CHECK(whole(in[0], in[1], in[2], in[3]) == all);
  auto recorded = whole;
  recorded.reads_step = true;
  CHECK(recorded(in[0], in[1], in[2], in[3]) == all);
  for (const int first : {0, 2}) {
    const auto columns = [&](const auto& matrix) {
      std::decay_t<decltype(matrix)> half;
      for (int row = 0; row < length; ++row)
        half.insert(half.end(), matrix.begin() + (4 * row + first) * size,
                    matrix.begin() + (4 * row + first + 2) * size);
      return half;
    };
    const OneSample<bf16> part{length, 2, size, first, 4, 0.1};
    const auto got = part(columns(in[0]), columns(in[1]), columns(in[2]), columns(in[3]));
    for (std::size_t at = 0; at < 4; ++at) CHECK(got[at] == columns(all[at]));
  }
}

TEST_CASE("fallback attention: a head that is too wide is refused with a sentence") {
  Side<float, Gpu> side;
  const AttentionCase with{.lengths = {2}, .heads = 1, .size = 300, .total_heads = 1};
  CHECK(message_of([&] { (void)attention_results(side, with); }) ==
        "attention: heads of 300 columns; on a GPU they have at most 256");
}

#ifndef __CUDACC__
TEST_CASE("fallback attention: a head too wide for shared memory is refused with a sentence") {
  const auto says = [&]<class T>(int size, TypeTag<T>) {
    Side<T, Gpu> side;
    side.dev.shared_bytes = 166912;  // as on an A100
    const AttentionCase with{.lengths = {2}, .heads = 1, .size = size, .total_heads = 1};
    return message_of([&] { (void)attention_results(side, with); });
  };
  CHECK(says(256, TypeTag<double>()) ==
        "attention: heads of 256 columns, with sums in f64, need 168576 bytes of shared memory, "
        "and this GPU has 166912 for a block; a narrower type (fp32, say) needs less");
  CHECK(says(240, TypeTag<double>()) == "no error");
  CHECK(says(256, TypeTag<float>()) == "no error");
  Gpu gpu;
  gpu.shared_bytes = 1 << 10;
  const detail::cuda::Grid grid{.blocks = 1, .threads = 32, .shared_bytes = 1040};
  CHECK(message_of([&] { launch(gpu, grid, [](auto&) {}); }) ==
        "the threads of a kernel's block need 1040 bytes of shared memory, and this GPU has 1024 "
        "for a block; a narrower type (fp32, say) needs less");
  CHECK(gpu.launches == 0);
}
#endif
