// Attention against whole T x T matrices in double: ragged rows, split heads, dropout, threads.
#include <dhp/cpu/attention.hpp>
#include <dhp/cpu/rows.hpp>
#include <tests/support/attention.hpp>

namespace {

/// Computes the results by the textbook loops, with one matrix of probabilities per sample and head.
Results by_loops(const AttentionCase& with) {
  const auto options = with.options();
  const auto columns = static_cast<std::size_t>(with.columns()),
             key_columns = static_cast<std::size_t>(with.key_columns()),
             heads = static_cast<std::size_t>(with.heads), size = columns / heads;
  const auto drawn = [&](std::int64_t width, std::uint32_t use) {
    return with.values<double>(width, use);
  };
  const auto q = drawn(with.columns(), 1), k = drawn(with.key_columns(), 2),
             v = drawn(with.key_columns(), 3), dy = drawn(with.columns(), 4);
  const auto numbers = with.numbers();
  const auto offsets = with.offsets();
  const std::vector<double> none(q.size(), 0), none_of_keys(k.size(), 0);
  Results found{none, none, none_of_keys, none_of_keys,
                std::vector<double>(heads * numbers.size(), 0)};
  auto &y = found[0], &dq = found[1], &dk = found[2], &dv = found[3], &logsumexp = found[4];
  const double scale = 1 / std::sqrt(static_cast<double>(size));
  for (std::size_t n = 0; n < with.lengths.size(); ++n)
    for (std::size_t head = 0; head < heads; ++head) {
      const auto length = static_cast<std::size_t>(with.lengths[n]);
      const auto first = static_cast<std::size_t>(offsets[n]);
      const auto at = [&](std::size_t i) { return (first + i) * columns + head * size; };
      const auto key_at = [&](std::size_t j) {
        return (first + j) * key_columns + head * key_columns / columns * size;
      };
      const auto dot = [&](const auto& a, std::size_t i, const auto& b, std::size_t j) {
        double sum = 0;
        for (std::size_t c = 0; c < size; ++c) sum += a[at(i) + c] * b[key_at(j) + c];
        return sum;
      };
      for (std::size_t i = 0; i < length; ++i) {
        double sum = 0, inner = 0;
        const auto seen = with.causal ? i + 1 : length;
        std::vector<double> p(length), mask(length), dp(length);
        for (std::size_t j = 0; j < seen; ++j) sum += std::exp(scale * dot(q, i, k, j));
        logsumexp[head * numbers.size() + first + i] = std::log(sum);
        for (std::size_t j = 0; j < seen; ++j) {
          const auto of_head = numbers[first + i] * with.total_heads + with.first_head +
                               static_cast<std::int64_t>(head);
          const auto number = static_cast<std::uint64_t>(of_head * with.longest()) + j;
          p[j] = std::exp(scale * dot(q, i, k, j)) / sum;
          const bool keeps = options.random.short_bits(number) >= 0x1p16 * with.dropout;
          mask[j] = keeps ? 1 / (1 - with.dropout) : 0;
          dp[j] = mask[j] * dot(dy, i, v, j);
          inner += p[j] * dp[j];
          for (std::size_t c = 0; c < size; ++c) {
            y[at(i) + c] += p[j] * mask[j] * v[key_at(j) + c];
            dv[key_at(j) + c] += p[j] * mask[j] * dy[at(i) + c];
          }
        }
        for (std::size_t j = 0; j < seen; ++j)
          for (std::size_t c = 0; c < size; ++c) {
            dq[at(i) + c] += scale * p[j] * (dp[j] - inner) * k[key_at(j) + c];
            dk[key_at(j) + c] += scale * p[j] * (dp[j] - inner) * q[at(i) + c];
          }
      }
    }
  return found;
}

template <class T>
void check_case(const AttentionCase& with) {
  check_attention<T, Cpu>(with);
  if constexpr (std::is_same_v<T, double>) {
    Side<double, Cpu> side{Cpu({.threads = 2})};
    const auto got = attention_results(side, with), right = by_loops(with);
    for (std::size_t at = 0; at < right.size(); ++at)
      CHECK(distance(got[at], right[at]) < (with.longest() > 100 ? 1e-12 : 1e-13));
  }
}

const AttentionCase ragged{.lengths = {5, 0, 9, 1}, .padding = {4, 9, 0, 8}};

}  // namespace

TEST_CASE_TEMPLATE("attention: matches whole matrices, and padding gives 0", T, double, float, bf16,
                   f16) {
  for (const double dropout : {0.0, 0.3})
    for (const bool padded : {true, false})
      for (const auto& [heads, size] : {std::pair{1, 5}, {3, 4}, {2, 16}}) {
        auto with = ragged;
        if (!padded) with.padding.clear();
        with.heads = heads;
        with.size = size;
        with.dropout = dropout;
        with.first_head = padded ? 2 : 0;  // the heads of the second of two ranks
        with.total_heads = with.first_head + heads;
        check_case<T>(with);
      }
}

TEST_CASE_TEMPLATE("attention: causal attention and shared keys match whole matrices", T, double,
                   float, bf16, f16) {
  for (const auto& [key_heads, causal] : {std::pair{0, true}, {2, false}, {1, true}}) {
    auto with = ragged;
    with.heads = with.first_head = 4;
    with.total_heads = 8;
    with.size = 3;
    with.dropout = 0.3;
    with.key_heads = key_heads;
    with.causal = causal;
    check_case<T>(with);
    with.dropout = 0;
    with.padding.clear();
    check_case<T>(with);
  }
}

TEST_CASE_TEMPLATE("attention: samples longer than a block of queries or keys match", T, double,
                   float) {
  AttentionCase with{.lengths = {600, 128, 129}, .size = 5, .dropout = 0.1};
  check_case<T>(with);
  with.key_heads = 1;
  with.causal = true;
  check_case<T>(with);
}

TEST_CASE_TEMPLATE("attention: threads, padding and joined q, k, v change no bit", T, double, float,
                   bf16, f16) {
  has_bits_on_threads<T>([](auto& side) {
    return attention_results(side, {.lengths = {7, 150, 20, 0, 33}, .dropout = 0.2});
  });
  Side<T, Cpu> side;
  auto with = ragged;
  with.dropout = 0.4;
  const auto padded = attention_results(side, with);
  with.joined = true;
  CHECK(attention_results(side, with) == padded);
  with.joined = false;
  const auto numbers = with.numbers();
  with.padding.clear();
  const auto packed = attention_results(side, with);
  for (std::size_t at = 0; at < packed.size(); ++at) {
    const auto width = at == 4 ? 1 : static_cast<std::size_t>(with.columns());
    std::vector<double> tokens;
    for (std::size_t place = 0; place < padded[at].size(); ++place)
      if (numbers[place / width % numbers.size()] >= 0) tokens.push_back(padded[at][place]);
    CHECK(tokens == packed[at]);
  }
}

TEST_CASE("attention: extreme scores neither overflow nor vanish") {
  Side<float, Cpu> side;
  const auto column = [&](double one, double other) { return side.exactly({2, 1}, {one, other}); };
  const auto v = column(3, 5);
  CHECK(attention_results<Cpu>(side.dev, Samples(side.dev, {0, 2}, {2}), {}, column(200, -200),
                               column(100, 101), v,
                               v) == Results{{5, 3}, {0, 0}, {0, 0}, {5, 3}, {20200, -20000}});
  // The scores of a whole block of keys are -inf.
  constexpr std::int32_t rows = 600;
  const std::vector<double> q(rows, 1e20), values(rows, 2);
  std::vector<double> k(rows, -1e30);
  std::fill(k.begin() + 512, k.end(), 0);
  const Shape shape{rows, 1};
  Tensor<Cpu> y(side.dev, DType::f32, shape), logsumexp(side.dev, DType::f32, {1, rows});
  attention_forward(side.dev, side.exactly(shape, q), side.exactly(shape, k),
                    side.exactly(shape, values), Samples(side.dev, {0, rows}, {rows}), {}, y.mut(),
                    logsumexp.mut());
  CHECK(widened(side.dev, y) == values);
}

TEST_CASE("attention: zero samples and zero rows are accepted") {
  Side<float, Cpu> side;
  CHECK(attention_results(side, {.lengths = {}}) == Results(5));
  const auto empty = attention_results(side, {.lengths = {0, 0}, .padding = {4, 4}, .size = 1});
  for (const auto& each : empty) CHECK(each == std::vector<double>(16, 0.0));
}

TEST_CASE("attention: halves of the keys give the whole result, and wrong parts are refused") {
  Side<float, Cpu> side;
  auto& dev = side.dev;
  const AttentionCase with{.lengths = {5, 3}, .padding = {0, 2}};
  const auto of = [&](std::int64_t columns, std::uint32_t use) {
    return side.tensor({10, columns}, with.values<float>(columns, use));
  };
  const auto q = of(6, 1), k = of(3, 2);
  const AttentionOptions options{.heads = 2, .total_heads = 2, .key_heads = 1};
  const Samples samples(dev, with.offsets(), with.lengths, with.numbers(), 5);
  auto y = of(6, 3), whole = of(6, 3), dq = of(6, 3), dk = of(3, 3);
  Tensor<Cpu> logsumexp(dev, DType::f32, {2, 10});
  attention_forward(dev, q, k, k, samples, options, whole.mut(), logsumexp.mut());

  detail::AttentionParts<Cpu> parts{
      {{{0, 5, 5, 0}}, {{5, 5, 3, 0}}}, {{{0, 2, 2, 0}}, {{5, 1, 1, 0}}}, samples.row_numbers, 5};
  const auto forward = [&](InView<Cpu> values) {
    detail::attend_to_part_forward(dev, q, k, values, parts, options, y.mut(), logsumexp.mut());
  };
  const auto backward = [&](View<Cpu> gradient) {
    detail::attend_to_part_backward(dev, q, q, k, k, y, logsumexp, parts, options, gradient,
                                    dk.mut(), dk.mut());
  };
  forward(k);
  parts.more = true;
  parts.keys = {{{2, 3, 3, 2}}, {{6, 4, 2, 1}}};
  forward(k);
  CHECK(distance(widened(y), widened(whole)) < 1e-6);

  CHECK(message_of([&] { forward(q); }) ==
        "attention: v [10, 6] of f32 is not like k [10, 3] of f32");
  CHECK(message_of([&] { backward(dk.mut()); }) ==
        "attention: dq [10, 3] of f32 is not [10, 6] of f32");
  parts.keys[1][0].rows = 5;
  const char* const outside =
      "attention: 2 tokens at position 1 in rows [6, 11) of k do not fit 10 rows or the longest "
      "length 5";
  CHECK(message_of([&] { forward(k); }) == outside);
  CHECK(message_of([&] { backward(dq.mut()); }) == outside);
  parts.keys.pop_back();
  CHECK(message_of([&] { forward(k); }) ==
        "attention: queries of 2 samples, keys of 1 and row numbers [10] of i64; give both of one "
        "number of samples, and row numbers i64 [10]");
}

TEST_CASE("attention: operands that do not fit are refused") {
  Side<float, Cpu> side;
  auto& dev = side.dev;
  const auto q = side.elements({5, 6}, 1);
  using Ints = std::vector<std::int32_t>;
  const auto refusal = [&](const AttentionOptions& options, const Ints& lengths = {2, 3},
                           const Ints& offsets = {0, 2, 5}, std::int64_t longest = 3) {
    return message_of([&] {
      const Samples samples(dev, offsets, lengths, {0, 1, 2, 3, 4}, longest);
      (void)attention_results<Cpu>(dev, samples, options, q, q, q, q);
    });
  };
  CHECK(refusal({.heads = 4, .total_heads = 4}) ==
        "attention: 6 columns cannot be divided into 4 heads");
  CHECK(refusal({.heads = 2, .first_head = 1, .total_heads = 2}) ==
        "attention: heads [1, 3) are not among 2");
  CHECK(refusal({.dropout = 1}) == "attention: the dropout probability must be in [0, 1), got 1");
  CHECK(refusal({.heads = 3, .total_heads = 3, .key_heads = 2}) ==
        "attention: 3 heads cannot share the keys of 2");
  CHECK(refusal({.row_stride = 5}) == "attention: rows of 6 columns cannot be 5 elements apart");
  const auto no_fit = [](int sample, int length, const char* rows, int longest) {
    return concat("attention: sample ", sample, " of length ", length, " does not fit its rows ",
                  rows, " of 5 or the longest length ", longest);
  };
  CHECK(refusal({}, {2, 4}) == no_fit(1, 4, "[2, 5)", 3));
  CHECK(refusal({}, {-1, 3}) == no_fit(0, -1, "[0, 2)", 3));
  CHECK(refusal({}, {2, 3}, {0, 7, 5}) == no_fit(0, 2, "[0, 7)", 3));
  CHECK(refusal({}, {2, 3}, {0, 2, 5}, 2) == no_fit(1, 3, "[2, 5)", 2));
  CHECK(refusal({}, {2, 2}, {0, 2, 4}) == "attention: the samples own rows [0, 4), not all 5");

  const auto half = random_tensor<f16>(dev, {5, 6}, 1);
  auto y = side.elements({5, 6}, 1);
  auto sums = random_tensor<float>(dev, {1, 5}, 1);
  auto wide = random_tensor<double>(dev, {1, 5}, 1);
  const Samples samples(dev, {0, 2, 5}, {2, 3});
  CHECK(message_of([&] { attention_forward(dev, q, half, q, samples, {}, y.mut(), sums.mut()); }) ==
        "attention: k [5, 6] of f16 is not like q [5, 6] of f32");
  CHECK(message_of([&] { attention_forward(dev, q, q, q, samples, {}, y.mut(), wide.mut()); }) ==
        "attention: logsumexp [1, 5] of f64 is not [1, 5] of f32");
  CHECK(message_of([&] {
          attention_backward(dev, q, q, q, q, q, sums, samples, {}, y.mut(), wide.mut(), y.mut());
        }) == "attention: dk [1, 5] of f64 is not like q [5, 6] of f32");
  Sequences<Cpu> other = samples;
  other.row_numbers = samples.offsets;
  CHECK(message_of([&] { attention_forward(dev, q, q, q, other, {}, y.mut(), sums.mut()); }) ==
        "attention: offsets [3], lengths [2] and row numbers [3] do not fit 5 rows");
}
