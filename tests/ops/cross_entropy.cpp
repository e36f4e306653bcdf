// Cross-entropy on parts of the vocabulary, against loops in double; smoothing, ignored rows.
#include <dhp/cpu/cross_entropy.hpp>
#include <dhp/cpu/rows.hpp>
#include <tests/support/tensors.hpp>

namespace {

using Ints = std::vector<std::int32_t>;
using Values = std::vector<double>;
constexpr std::int64_t classes = 37;
const Ints some_labels{3, -1, 36, 0, 12, 12, -1, 20, 7, 36, 1};  // labels of 11 rows

struct Results {
  Values loss, gradient;
  Ints rank;
  bool operator==(const Results&) const = default;
};

// Runs the ops on the parts of a vocabulary, each with its own columns, and reduces between them like ranks.
template <class T>
Results run(Cpu& dev, const Tensor<Cpu>& logits, const Ints& wanted, double smoothing, double scale,
            const std::vector<Range>& parts, std::int64_t padding = 0) {
  using A = Accumulator<T>;
  const auto rows = logits.rows();
  const auto labels = tensor_of(dev, wanted);
  std::vector<Tensor<Cpu>> mine;
  std::vector<CrossEntropyOptions> options;
  std::vector<A> most(static_cast<std::size_t>(rows), -std::numeric_limits<A>::infinity());
  std::vector<A> totals(static_cast<std::size_t>(3 * rows), A(0));
  Ints ranks(static_cast<std::size_t>(rows), 0);
  for (const auto part : parts) {
    mine.emplace_back(dev, dtype_of<T>(), Shape{rows, part.size() + padding});
    std::fill_n(mine.back().mut().template data<T>(), mine.back().count(), static_cast<T>(NAN));
    copy_columns(dev, logits, part.first, mine.back().mut(), 0, part.size());
    options.push_back({.classes = logits.columns(),
                       .first_class = part.first,
                       .smoothing = smoothing,
                       .local_classes = padding == 0 ? -1 : part.size()});
    Tensor<Cpu> max(dev, dtype_of<A>(), {rows});
    detail::cross_entropy_max(dev, mine.back(), options.back(), max.mut());
    const auto here = max.template to_host<A>(dev);
    for (std::size_t at = 0; at < here.size(); ++at) most[at] = std::max(most[at], here[at]);
  }
  const auto max = Tensor<Cpu>::from_host(dev, {rows}, most);
  for (std::size_t at = 0; at < parts.size(); ++at) {
    Tensor<Cpu> sums(dev, dtype_of<A>(), {3, rows});
    detail::cross_entropy_sums(dev, mine[at], labels, max, options[at], sums.mut());
    const auto here = sums.template to_host<A>(dev);
    for (std::size_t i = 0; i < here.size(); ++i) totals[i] += here[i];
  }
  const auto sums = Tensor<Cpu>::from_host(dev, {3, rows}, totals);
  const auto factor = tensor_of(dev, Values{scale});
  Results out;
  Tensor<Cpu> gradient(dev, dtype_of<T>(), logits.shape()), loss(dev, dtype_of<A>(), {rows});
  for (std::size_t at = 0; at < parts.size(); ++at) {
    detail::cross_entropy_loss(dev, max, sums, labels, options[at], loss.mut());
    if (at > 0) CHECK(widened(loss) == out.loss);  // all parts give the same loss
    out.loss = widened(loss);
    Tensor<Cpu> rank(dev, DType::i32, {rows});
    detail::cross_entropy_rank(dev, mine[at], sums, labels, options[at], rank.mut());
    const auto here = rank.to_host<std::int32_t>(dev);
    for (std::size_t i = 0; i < here.size(); ++i) ranks[i] += here[i];
    Tensor<Cpu> piece(dev, dtype_of<T>(), mine[at].shape());
    detail::cross_entropy_backward(dev, mine[at], max, sums, labels, options[at], factor,
                                   piece.mut());
    copy_columns(dev, piece, 0, gradient.mut(), parts[at].first, parts[at].size());
    const auto values = widened(piece);
    for (std::size_t i = 0; i < values.size(); ++i)
      if (static_cast<std::int64_t>(i) % piece.columns() >= parts[at].size()) CHECK(values[i] == 0);
    detail::cross_entropy_backward(dev, mine[at], max, sums, labels, options[at], factor,
                                   mine[at].mut());
    // In place, the bits are the same, NaN included.
    CHECK(std::memcmp(mine[at].view().bytes(), piece.view().bytes(), piece.size_bytes()) == 0);
  }
  out.gradient = widened(gradient);
  out.rank = ranks;
  return out;
}

template <class T>
Results run(Cpu& dev, double smoothing, double scale, const std::vector<Range>& parts,
            std::int64_t padding = 0) {
  return run<T>(dev, random_tensor<T>(dev, {11, classes}, 1), some_labels, smoothing, scale, parts,
                padding);
}

Results expected(const Values& x, const Ints& labels, double smoothing, double scale) {
  Results out;
  out.gradient = Values(x.size(), 0);
  const auto width = x.size() / labels.size();
  for (std::size_t row = 0; row < labels.size(); ++row) {
    out.loss.push_back(0);
    out.rank.push_back(0);
    if (labels[row] < 0) continue;
    const auto label = static_cast<std::size_t>(labels[row]);
    const double* from = x.data() + row * width;
    double sum = 0;
    for (std::size_t c = 0; c < width; ++c) sum += std::exp(from[c]);
    for (std::size_t c = 0; c < width; ++c) {
      const double target =
          smoothing / static_cast<double>(width) + (c == label ? 1 - smoothing : 0);
      out.loss.back() -= target * std::log(std::exp(from[c]) / sum);
      out.gradient[row * width + c] = scale * (std::exp(from[c]) / sum - target);
      if (from[c] > from[label] || (from[c] == from[label] && c < label)) ++out.rank.back();
    }
  }
  return out;
}

const std::vector<Range> unsplit{{0, classes}};

}  // namespace

TEST_CASE_TEMPLATE("cross entropy: matches plain loops, for whole rows and uneven parts", T, double,
                   float, bf16, f16) {
  Cpu dev({.threads = 2});
  const auto x = widened(random_tensor<T>(dev, {11, classes}, 1));
  const double close = std::is_same_v<T, double> ? 1e-13 : 2e-6;
  const double rounded = is_16_bit<T> ? 4e-3 : close;
  for (const double smoothing : {0.0, 0.1, 1.0})
    for (const auto& parts : {unsplit, {{0, 13}, {13, 37}}, {{0, 1}, {1, 30}, {30, 37}}}) {
      INFO("smoothing ", smoothing, " parts.size() ", parts.size());
      const Results reference = expected(x, some_labels, smoothing, 0.75);
      const Results got = run<T>(dev, smoothing, 0.75, parts);
      CHECK(distance(got.loss, reference.loss) < close);
      CHECK(distance(got.gradient, reference.gradient) < rounded);
      CHECK(got.rank == reference.rank);
      CHECK(run<T>(dev, smoothing, 0.75, parts, 5) == got);
    }
}

TEST_CASE_TEMPLATE("cross entropy: threads change no bit", T, double, float, bf16, f16) {
  CHECK(same_on_threads([](Cpu& dev) { return run<T>(dev, 0.1, 1, unsplit); }));
}

TEST_CASE_TEMPLATE("cross entropy: of equal logits the first is predicted", T, double, float, bf16,
                   f16) {
  Cpu dev;
  std::vector<T> values;
  for (int row = 0; row < 5; ++row)
    for (const float value : {1.0f, 2.0f, 2.0f, -3.0f, 2.0f}) values.push_back(T(value));
  const auto x = Tensor<Cpu>::from_host(dev, {5, 5}, values);
  const Ints all{0, 1, 2, 3, 4};
  for (const auto& parts : {std::vector<Range>{{0, 5}}, {{0, 2}, {2, 5}}, {{0, 1}, {1, 4}, {4, 5}}})
    CHECK(run<T>(dev, x, all, 0, 1, parts).rank == Ints{3, 0, 1, 4, 2});
}

TEST_CASE("cross entropy: extreme logits neither overflow nor vanish") {
  Cpu dev;
  const auto x = Tensor<Cpu>::from_host(dev, {2, 3},
                                        std::vector<float>{9000, 9001, -9000, -500, -500, -1e30f});
  const Results got = run<float>(dev, x, {0, 2}, 0, 1, {{0, 2}, {2, 3}});
  CHECK(got.loss[0] == Approx(1 + std::log1p(std::exp(-1))).epsilon(1e-6));
  CHECK(got.loss[1] == Approx(1e30));
  CHECK(distance(got.gradient, {-0.7310586, 0.7310586, 0, 0.5, 0.5, -1}) < 1e-6);
  CHECK(got.rank == Ints{1, 2});
}

TEST_CASE_TEMPLATE("cross entropy: a shift of all logits loses no digits", T, double, float, bf16,
                   f16) {
  const double far = std::is_same_v<T, double>  ? 0x1p40
                     : std::is_same_v<T, float> ? 0x1p20
                     : std::is_same_v<T, f16>   ? 1024
                                                : 128;
  Cpu dev;
  Values near;
  std::vector<T> logits;
  for (int at = 0; at < 11 * classes; ++at) {
    near.push_back(at * 31 % 8);  // T holds these integers also when `far` is added
    logits.push_back(static_cast<T>(near.back() + far));
  }
  const auto x = Tensor<Cpu>::from_host(dev, {11, classes}, logits);
  for (const double smoothing : {0.0, 0.1, 1.0}) {
    const Results reference = expected(near, some_labels, smoothing, 1);
    for (const auto& parts : {unsplit, {{0, 13}, {13, 37}}})
      CHECK(distance(run<T>(dev, x, some_labels, smoothing, 1, parts).loss, reference.loss) <
            (std::is_same_v<T, double> ? 1e-13 : 2e-6));
  }
}

TEST_CASE("cross entropy: NaN affects its own row only and is no right prediction") {
  Cpu dev;
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  const auto x =
      Tensor<Cpu>::from_host(dev, {4, 2}, std::vector<float>{nan, 0, 0, nan, nan, 0, 1, 0});
  const Results got = run<float>(dev, x, {0, 0, -1, 0}, 0, 1, {{0, 2}});
  CHECK(std::isnan(got.loss[0]));
  CHECK(std::isnan(got.loss[1]));
  CHECK(std::isnan(got.gradient[0]));
  CHECK(got.loss[2] == 0);
  CHECK(got.gradient[4] == 0);
  CHECK(got.loss[3] == Approx(std::log1p(std::exp(-1.0))));
  CHECK((got.rank[0] > 0 && got.rank[1] > 0 && got.rank[2] == 0 && got.rank[3] == 0));
}

TEST_CASE("cross entropy: zero rows are accepted") {
  Cpu dev;
  const auto x = Tensor<Cpu>::zeros(dev, DType::f32, {0, 5});
  CHECK(run<float>(dev, x, {}, 0.1, 1, {{0, 2}, {2, 5}}) == Results{});
}

TEST_CASE("cross entropy: every operation refuses a label outside the classes") {
  Cpu dev;
  const auto x = random_tensor<float>(dev, {2, 3}, 1);
  const auto max = random_tensor<float>(dev, {2}, 2);
  auto sums = random_tensor<float>(dev, {3, 2}, 3);
  auto out = random_tensor<float>(dev, {2, 3}, 1), loss = random_tensor<float>(dev, {2}, 1);
  auto rank = Tensor<Cpu>::zeros(dev, DType::i32, {2});
  const CrossEntropyOptions options{.classes = 7, .first_class = 4};
  for (const std::int32_t wrong : {7, -2}) {
    const auto labels = tensor_of(dev, Ints{0, wrong});
    const auto reference =
        concat("cross_entropy: label ", wrong, " of row 1 is not among 7 classes (-1: ignored)");
    const auto refused = [&](auto body) { CHECK(message_of(body) == reference); };
    refused([&] { detail::cross_entropy_sums(dev, x, labels, max, options, sums.mut()); });
    refused([&] { detail::cross_entropy_loss(dev, max, sums, labels, options, loss.mut()); });
    refused([&] { detail::cross_entropy_rank(dev, x, sums, labels, options, rank.mut()); });
    refused([&] {
      detail::cross_entropy_backward(dev, x, max, sums, labels, options, tensor_of(dev, Values{1}),
                                     out.mut());
    });
  }
}

TEST_CASE("cross entropy: operands that do not fit are refused") {
  Cpu dev;
  const auto x = random_tensor<bf16>(dev, {2, 3}, 1);
  auto max = random_tensor<float>(dev, {2}, 2);
  auto sums = random_tensor<float>(dev, {3, 2}, 3);
  auto wide = random_tensor<double>(dev, {2}, 2);
  auto rank = Tensor<Cpu>::zeros(dev, DType::i64, {2});
  const auto labels = tensor_of(dev, Ints{0, 1}), three = tensor_of(dev, Ints{0, 1, 2});
  const CrossEntropyOptions good{.classes = 3};
  const auto of_sums = [&](const Tensor<Cpu>& wanted, const CrossEntropyOptions& options) {
    return message_of(
        [&] { detail::cross_entropy_sums(dev, x, wanted, max, options, sums.mut()); });
  };
  CHECK(of_sums(labels, good) == "no error");
  CHECK(of_sums(three, good) == "cross_entropy: the labels [3] of i32 are not [2] of i32");
  CHECK(of_sums(rank, good) == "cross_entropy: the labels [2] of i64 are not [2] of i32");
  CHECK(of_sums(labels, {.classes = 5, .first_class = 3}) ==
        "cross_entropy: logits of classes [3, 6) are not among 5");
  CHECK(of_sums(labels, {.classes = 5, .first_class = -1}) ==
        "cross_entropy: logits of classes [-1, 2) are not among 5");
  CHECK(of_sums(labels, {.classes = 5, .local_classes = 4}) ==
        "cross_entropy: logits of 3 columns cannot have 4 classes");
  CHECK(of_sums(labels, {.classes = 3, .smoothing = 1.5}) ==
        "cross_entropy: the smoothing must be in [0, 1], got 1.5");
  CHECK(message_of([&] { detail::cross_entropy_max(dev, x, good, wide.mut()); }) ==
        "cross_entropy: the maxima [2] of f64 do not fit the logits [2, 3] of bf16");
  CHECK(message_of([&] { detail::cross_entropy_sums(dev, x, labels, max, good, max.mut()); }) ==
        "cross_entropy: the sums [2] of f32 are not [3, 2] of f32");
  CHECK(message_of([&] { detail::cross_entropy_loss(dev, max, sums, labels, good, wide.mut()); }) ==
        "cross_entropy: the maxima [2] of f32 are not [2] of f64");
  CHECK(message_of([&] { detail::cross_entropy_rank(dev, x, sums, labels, good, rank.mut()); }) ==
        "cross_entropy: the ranks [2] of i64 are not [2] of i32");
  CHECK(message_of([&] {
          detail::cross_entropy_backward(dev, x, max, sums, labels, good, tensor_of(dev, Values{1}),
                                         sums.mut());
        }) ==
        "cross_entropy: the gradient [3, 2] of f32 does not fit [2, 3] of bf16; make it like that");
}

TEST_CASE("cross_entropy_totals: gives the sum and counted rows, with ranks also top-1 and top-5") {
  Cpu dev;
  const auto loss = Tensor<Cpu>::from_host(dev, {5}, std::vector<float>{1, 0, 2.5f, 4, 0});
  const auto labels = Tensor<Cpu>::from_host(dev, {5}, Ints{3, -1, 0, 2, -1});
  const auto rank = Tensor<Cpu>::from_host(dev, {5}, Ints{0, 0, 4, 5, 0});
  Tensor<Cpu> totals(dev, DType::f64, {4});
  detail::cross_entropy_totals(dev, loss, labels, {}, totals.mut());
  CHECK(widened(totals) == Values{7.5, 3, 0, 0});
  detail::cross_entropy_totals(dev, loss, labels, rank, totals.mut());
  CHECK(widened(totals) == Values{7.5, 3, 1, 2});
}
