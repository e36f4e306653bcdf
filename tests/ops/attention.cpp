// Attention against whole T x T matrices in double: ragged rows, split heads, dropout, threads.
#include <dhp/cpu/attention.hpp>
#include <dhp/cpu/rows.hpp>
#include <tests/support/attention.hpp>
#include <tests/support/tensors.hpp>

namespace {

constexpr RandomStream stream{.seed = 11, .series = 2, .use = 9};
using Ints = std::vector<std::int32_t>;
using Values = std::vector<double>;

// The rows of samples. Row (n, position) has the number n * longest + position.
struct Layout {
  Ints lengths;
  std::int64_t longest;
  Ints offsets{0};
  std::vector<std::int64_t> numbers;

  Layout(Ints of, std::int64_t longest_of_all, bool padded)
      : lengths(std::move(of)), longest(longest_of_all) {
    for (std::size_t n = 0; n < lengths.size(); ++n) {
      const auto rows = padded ? longest : lengths[n];
      for (std::int64_t i = 0; i < rows; ++i)
        numbers.push_back(static_cast<std::int64_t>(n) * longest + i);
      offsets.push_back(static_cast<std::int32_t>(numbers.size()));
    }
  }
  [[nodiscard]] std::int64_t rows() const { return static_cast<std::int64_t>(numbers.size()); }
  [[nodiscard]] bool is_token(std::int64_t row) const {
    const auto number = numbers[static_cast<std::size_t>(row)];
    const auto sample = static_cast<std::size_t>(number / longest);
    // Tests of refusals make the numbers invalid.
    return sample < lengths.size() && number % longest < lengths[sample];
  }
};

// Returns values by row number and column. Padding is NaN, because no op may read it.
template <class T>
Tensor<Cpu> rows_of(Cpu& dev, const Layout& layout, std::int64_t columns, std::uint32_t use) {
  Tensor<Cpu> result(dev, dtype_of<T>(), {layout.rows(), columns});
  T* values = result.mut().data<T>();
  for (std::int64_t row = 0; row < layout.rows(); ++row)
    for (std::int64_t c = 0; c < columns; ++c) {
      const auto number = layout.numbers[static_cast<std::size_t>(row)] * columns + c;
      const double value =
          RandomStream{.seed = 3, .use = use}.normal(static_cast<std::uint64_t>(number));
      values[row * columns + c] = static_cast<T>(layout.is_token(row) ? value : std::nan(""));
    }
  return result;
}

Samples<Cpu> samples_of(Cpu& dev, const Layout& layout) {
  return {dev, layout.offsets, layout.lengths, layout.numbers, layout.longest};
}

struct Results {
  Values y, logsumexp, dq, dk, dv;
  bool operator==(const Results&) const = default;
};

// Runs both passes. Results are filled with NaN before, so that missing writes show.
template <class T>
Results run(Cpu& dev, const Layout& layout, const AttentionOptions& options, const Tensor<Cpu>& q,
            const Tensor<Cpu>& k, const Tensor<Cpu>& v, const Tensor<Cpu>& dy) {
  using A = Accumulator<T>;
  const auto side = samples_of(dev, layout);
  const auto blank = [&]<class E>(TypeTag<E>, const Shape& shape) {
    return Tensor<Cpu>::from_host(
        dev, shape, std::vector<E>(static_cast<std::size_t>(shape.count()), static_cast<E>(NAN)));
  };
  auto y = blank(TypeTag<T>{}, q.shape());
  auto logsumexp = blank(TypeTag<A>{}, {options.heads, layout.rows()});
  auto dq = blank(TypeTag<T>{}, q.shape()), dk = blank(TypeTag<T>{}, k.shape()),
       dv = blank(TypeTag<T>{}, v.shape());
  attention_forward(dev, q, k, v, side, options, y.mut(), logsumexp.mut());
  attention_backward(dev, dy, q, k, v, y, logsumexp, side, options, dq.mut(), dk.mut(), dv.mut());
  return {widened(y), widened(logsumexp), widened(dq), widened(dk), widened(dv)};
}

template <class T>
Results run(Cpu& dev, const Layout& layout, const AttentionOptions& options, std::int64_t columns) {
  const auto of_keys = columns / options.sharing();
  return run<T>(dev, layout, options, rows_of<T>(dev, layout, columns, 1),
                rows_of<T>(dev, layout, of_keys, 2), rows_of<T>(dev, layout, of_keys, 3),
                rows_of<T>(dev, layout, columns, 4));
}

// The textbook loops, with one matrix of probabilities per sample and head.
template <class T>
Results expected(const Layout& layout, const AttentionOptions& options, std::int64_t all_columns) {
  Cpu dev;
  const auto columns = static_cast<std::size_t>(all_columns);
  const auto q = widened(rows_of<T>(dev, layout, all_columns, 1));
  const auto sharing = static_cast<std::size_t>(options.sharing());
  const auto k = widened(rows_of<T>(dev, layout, all_columns / options.sharing(), 2));
  const auto v = widened(rows_of<T>(dev, layout, all_columns / options.sharing(), 3));
  const auto dy = widened(rows_of<T>(dev, layout, all_columns, 4));
  const auto rows = static_cast<std::size_t>(layout.rows());
  const auto heads = static_cast<std::size_t>(options.heads);
  const Values none(q.size(), 0), none_of_keys(k.size(), 0);
  Results out{none, Values(heads * rows, 0), none, none_of_keys, none_of_keys};
  const auto size = columns / heads;
  const double scale = 1 / std::sqrt(static_cast<double>(size));
  for (std::size_t n = 0; n < layout.lengths.size(); ++n)
    for (std::size_t head = 0; head < heads; ++head) {
      const auto length = static_cast<std::size_t>(layout.lengths[n]);
      const auto row = [&](std::size_t i) {
        return static_cast<std::size_t>(layout.offsets[n]) + i;
      };
      const auto at = [&](std::size_t i) { return row(i) * columns + head * size; };
      const auto key_at = [&](std::size_t j) {
        return row(j) * (columns / sharing) + head / sharing * size;
      };
      const auto dot = [&](const Values& a, std::size_t i, const Values& b, std::size_t j) {
        double sum = 0;
        for (std::size_t c = 0; c < size; ++c) sum += a[at(i) + c] * b[key_at(j) + c];
        return sum;
      };
      for (std::size_t i = 0; i < length; ++i) {
        double sum = 0, inner = 0;
        const auto seen = options.causal ? i + 1 : length;
        Values p(length), mask(length), dp(length);
        for (std::size_t j = 0; j < seen; ++j) sum += std::exp(scale * dot(q, i, k, j));
        out.logsumexp[head * rows + row(i)] = std::log(sum);
        for (std::size_t j = 0; j < seen; ++j) {
          const auto of_head = layout.numbers[row(i)] * options.total_heads + options.first_head +
                               static_cast<std::int64_t>(head);
          const auto number = static_cast<std::uint64_t>(of_head * layout.longest) + j;
          p[j] = std::exp(scale * dot(q, i, k, j)) / sum;
          mask[j] =
              stream.short_bits(number) >= 0x1p16 * options.dropout ? 1 / (1 - options.dropout) : 0;
          dp[j] = mask[j] * dot(dy, i, v, j);
          inner += p[j] * dp[j];
          for (std::size_t c = 0; c < size; ++c) {
            out.y[at(i) + c] += p[j] * mask[j] * v[key_at(j) + c];
            out.dv[key_at(j) + c] += p[j] * mask[j] * dy[at(i) + c];
          }
        }
        for (std::size_t j = 0; j < seen; ++j)
          for (std::size_t c = 0; c < size; ++c) {
            out.dq[at(i) + c] += scale * p[j] * (dp[j] - inner) * k[key_at(j) + c];
            out.dk[key_at(j) + c] += scale * p[j] * (dp[j] - inner) * q[at(i) + c];
          }
      }
    }
  return out;
}

void check_close(const Results& got, const Results& reference, double close) {
  CHECK(distance(got.y, reference.y) < close);
  CHECK(distance(got.logsumexp, reference.logsumexp) < close);
  CHECK(distance(got.dq, reference.dq) < close);
  CHECK(distance(got.dk, reference.dk) < close);
  CHECK(distance(got.dv, reference.dv) < close);
}

// Returns the tokens of a result with rows [R, width], in the order of the row numbers.
Values tokens(const Layout& layout, const Values& values, std::int64_t width) {
  Values out;
  for (std::int64_t row = 0; row < layout.rows(); ++row)
    if (layout.is_token(row))
      out.insert(out.end(), values.begin() + row * width, values.begin() + (row + 1) * width);
  return out;
}

const Ints ragged{5, 0, 9, 1};

}  // namespace

TEST_CASE_TEMPLATE("attention: matches whole matrices, and padding gives 0", T, double, float, bf16,
                   f16) {
  Cpu dev({.threads = 2});
  const double close = std::is_same_v<T, double> ? 1e-13 : is_16_bit<T> ? 4e-2 : 1e-5;
  for (const double p : {0.0, 0.3})
    for (const bool padded : {true, false})
      for (const auto& [heads, columns] : {std::pair{1, 5}, {3, 12}, {2, 32}}) {
        INFO("p ", p, " padded ", padded, " heads ", heads);
        const Layout layout(ragged, 9, padded);
        // With padding, these are the heads of the second of two ranks.
        const int before = padded ? 2 : 0;
        const AttentionOptions options{.heads = heads,
                                       .first_head = before,
                                       .total_heads = before + heads,
                                       .dropout = p,
                                       .random = stream};
        check_close(run<T>(dev, layout, options, columns), expected<T>(layout, options, columns),
                    close);
      }
}

TEST_CASE_TEMPLATE("attention: causal attention and shared keys match whole matrices", T, double,
                   float, bf16, f16) {
  Cpu dev({.threads = 2});
  const double close = std::is_same_v<T, double> ? 1e-13 : is_16_bit<T> ? 4e-2 : 1e-5;
  for (const bool padded : {true, false})
    for (const auto& [key_heads, causal] : {std::pair{0, true}, {2, false}, {1, true}}) {
      INFO("key heads ", key_heads);
      const Layout layout(ragged, 9, padded);
      const AttentionOptions options{.heads = 4,
                                     .first_head = 4,
                                     .total_heads = 8,
                                     .key_heads = key_heads,
                                     .causal = causal,
                                     .dropout = padded ? 0.3 : 0,
                                     .random = stream};
      check_close(run<T>(dev, layout, options, 12), expected<T>(layout, options, 12), close);
    }
}

TEST_CASE_TEMPLATE("attention: samples longer than a block of queries or keys match", T, double,
                   float) {
  Cpu dev({.threads = 3});
  const double close = std::is_same_v<T, double> ? 1e-12 : 2e-5;
  const Layout layout({600, 128, 129}, 601, false);
  AttentionOptions options{.heads = 2, .total_heads = 2, .dropout = 0.1, .random = stream};
  check_close(run<T>(dev, layout, options, 10), expected<T>(layout, options, 10), close);
  options.key_heads = 1;
  options.causal = true;
  check_close(run<T>(dev, layout, options, 10), expected<T>(layout, options, 10), close);
}

TEST_CASE_TEMPLATE("attention: threads change no bit", T, double, float, bf16, f16) {
  const Layout layout({7, 150, 20, 0, 33}, 160, false);
  const AttentionOptions options{.heads = 3, .total_heads = 3, .dropout = 0.2, .random = stream};
  CHECK(same_on_threads([&](Cpu& dev) { return run<T>(dev, layout, options, 24); }));
}

TEST_CASE_TEMPLATE("attention: padded and packed rows have the same bits", T, double, float, bf16,
                   f16) {
  const AttentionOptions options{.heads = 1, .total_heads = 1, .dropout = 0.4, .random = stream};
  Cpu dev;
  const Layout padded(ragged, 9, true), tight(ragged, 9, false);
  const Results one = run<T>(dev, padded, options, 6), other = run<T>(dev, tight, options, 6);
  CHECK(tokens(padded, one.y, 6) == other.y);
  CHECK(tokens(padded, one.logsumexp, 1) == other.logsumexp);
  CHECK(tokens(padded, one.dq, 6) == other.dq);
  CHECK(tokens(padded, one.dk, 6) == other.dk);
  CHECK(tokens(padded, one.dv, 6) == other.dv);
}

TEST_CASE_TEMPLATE("attention: q, k, v and gradients may be columns of one matrix", T, double,
                   bf16) {
  using A = Accumulator<T>;
  Cpu dev;
  const Layout layout(ragged, 9, true);
  const AttentionOptions apart{.heads = 2, .total_heads = 2, .dropout = 0.3, .random = stream};
  const std::int64_t columns = 6;
  const auto separate = run<T>(dev, layout, apart, columns);
  auto options = apart;
  options.row_stride = 3 * columns;
  const auto side = samples_of(dev, layout);
  const Shape shape{layout.rows(), columns};
  Thirds<Cpu> in(dev, dtype_of<T>(), shape), out(dev, dtype_of<T>(), shape);
  in.put(dev, rows_of<T>(dev, layout, columns, 1), rows_of<T>(dev, layout, columns, 2),
         rows_of<T>(dev, layout, columns, 3));
  Tensor<Cpu> y(dev, dtype_of<T>(), shape), logsumexp(dev, dtype_of<A>(), {2, layout.rows()});
  attention_forward(dev, in.at(0), in.at(1), in.at(2), side, options, y.mut(), logsumexp.mut());
  attention_backward(dev, rows_of<T>(dev, layout, columns, 4), in.at(0), in.at(1), in.at(2), y,
                     logsumexp, side, options, out.at(0), out.at(1), out.at(2));
  CHECK(separate == Results{widened(y), widened(logsumexp), widened(out.take(dev, 0)),
                            widened(out.take(dev, 1)), widened(out.take(dev, 2))});
}

TEST_CASE("attention: extreme scores neither overflow nor vanish") {
  Cpu dev;
  const Layout layout({2}, 2, false);
  const auto q = Tensor<Cpu>::from_host(dev, {2, 1}, std::vector<float>{200, -200});
  const auto k = Tensor<Cpu>::from_host(dev, {2, 1}, std::vector<float>{100, 101});
  const auto v = Tensor<Cpu>::from_host(dev, {2, 1}, std::vector<float>{3, 5});
  const Results got = run<float>(dev, layout, {}, q, k, v, v);
  CHECK(got.y == Values{5, 3});
  CHECK(got.logsumexp == Values{20200, -20000});
  CHECK(got.dq == Values{0, 0});
}

TEST_CASE("attention: zero samples and zero rows are accepted") {
  Cpu dev;
  CHECK(run<float>(dev, Layout({}, 4, true), {}, 8) == Results{});
  const Results empty = run<float>(dev, Layout({0, 0}, 4, true), {}, 2);
  CHECK(empty.y == Values(16, 0.0));
  CHECK(empty.dk == Values(16, 0.0));
}

TEST_CASE("attention: halves of the keys give the whole result, and wrong parts are refused") {
  Cpu dev;
  const Layout layout({5, 3}, 5, true);
  const auto q = rows_of<float>(dev, layout, 6, 1), k = rows_of<float>(dev, layout, 3, 2);
  const AttentionOptions options{.heads = 2, .total_heads = 2, .key_heads = 1};
  const auto side = samples_of(dev, layout);
  auto y = rows_of<float>(dev, layout, 6, 3), whole = rows_of<float>(dev, layout, 6, 3);
  auto dq = rows_of<float>(dev, layout, 6, 3), dk = rows_of<float>(dev, layout, 3, 3);
  Tensor<Cpu> logsumexp(dev, DType::f32, {2, 10});
  attention_forward(dev, q, k, k, side, options, whole.mut(), logsumexp.mut());

  detail::AttentionParts<Cpu> parts{
      {{{0, 5, 5, 0}}, {{5, 5, 3, 0}}}, {{{0, 2, 2, 0}}, {{5, 1, 1, 0}}}, side.row_numbers, 5};
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
  CHECK(
      message_of([&] { forward(k); }) ==
      "attention: queries of 2 samples, keys of 1 and row numbers [10] of i64 do not fit 10 rows");
}

TEST_CASE("attention: operands that do not fit are refused") {
  Cpu dev;
  const auto refusal = [&](const Layout& layout, const AttentionOptions& options) {
    return message_of([&] { run<float>(dev, layout, options, 6); });
  };
  const Layout good({2, 3}, 3, false);
  CHECK(refusal(good, {.heads = 4, .total_heads = 4}) ==
        "attention: 6 columns cannot be divided into 4 heads");
  CHECK(refusal(good, {.heads = 2, .first_head = 1, .total_heads = 2}) ==
        "attention: heads [1, 3) are not among 2");
  CHECK(refusal(good, {.dropout = 1}) ==
        "attention: the dropout probability must be in [0, 1), got 1");
  CHECK(refusal(good, {.heads = 3, .total_heads = 3, .key_heads = 2}) ==
        "attention: 3 heads cannot share the keys of 2");
  CHECK(refusal(good, {.row_stride = 5}) ==
        "attention: rows of 6 columns cannot be 5 elements apart");
  const auto spoilt = [&](auto spoil) {
    auto layout = good;
    spoil(layout);
    return refusal(layout, {});
  };
  const auto no_fit = [](int sample, int length, const char* rows, int longest) {
    return concat("attention: sample ", sample, " of length ", length, " does not fit its rows ",
                  rows, " of 5 or the longest length ", longest);
  };
  CHECK(spoilt([](Layout& of) { of.lengths[1] = 4; }) == no_fit(1, 4, "[2, 5)", 3));
  CHECK(spoilt([](Layout& of) { of.lengths[0] = -1; }) == no_fit(0, -1, "[0, 2)", 3));
  CHECK(spoilt([](Layout& of) { of.offsets[1] = 7; }) == no_fit(0, 2, "[0, 7)", 3));
  CHECK(spoilt([](Layout& of) { of.longest = 2; }) == no_fit(1, 3, "[2, 5)", 2));
  CHECK(spoilt([](Layout& of) { of.offsets[2] = 4; }) ==
        "attention: the samples own rows [0, 4), not all 5");

  const auto q = rows_of<float>(dev, good, 6, 1);
  const auto half = rows_of<f16>(dev, good, 6, 1);
  auto y = rows_of<float>(dev, good, 6, 1);
  auto sums = random_tensor<float>(dev, {1, 5}, 1);
  auto wide = random_tensor<double>(dev, {1, 5}, 1);
  const auto side = samples_of(dev, good);
  CHECK(message_of([&] { attention_forward(dev, q, half, q, side, {}, y.mut(), sums.mut()); }) ==
        "attention: k [5, 6] of f16 is not like q [5, 6] of f32");
  CHECK(message_of([&] { attention_forward(dev, q, q, q, side, {}, y.mut(), wide.mut()); }) ==
        "attention: logsumexp [1, 5] of f64 is not [1, 5] of f32");
  CHECK(message_of([&] {
          attention_backward(dev, q, q, q, q, q, sums, side, {}, y.mut(), wide.mut(), y.mut());
        }) == "attention: dk [1, 5] of f64 is not like q [5, 6] of f32");
  Sequences<Cpu> other = side;
  other.row_numbers = side.offsets;
  CHECK(message_of([&] { attention_forward(dev, q, q, q, other, {}, y.mut(), sums.mut()); }) ==
        "attention: offsets [3], lengths [2] and row numbers [3] do not fit 5 rows");
}
