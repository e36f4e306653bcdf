// Cross-entropy on the Cpu, on parts of the vocabulary, against loops in double.
#include <dhp/cpu/cross_entropy.hpp>
#include <dhp/cpu/elementwise.hpp>
#include <dhp/cpu/rows.hpp>
#include <tests/ops/cross_entropy.hpp>

namespace {

constexpr std::int64_t rows = 11, classes = 37;
const std::vector<std::vector<Range>> some_parts{
    {}, {{0, 13}, {13, 37}}, {{0, 1}, {1, 30}, {30, 37}}};

/// Returns loss, gradient and rank.
Results by_loops(double smoothing) {
  Side<double, Cpu> side;
  const auto x = widened(side.elements({rows, classes}, 1));
  const auto labels = some_labels(rows, classes);
  Results found{{}, std::vector<double>(x.size()), {}};
  for (std::size_t row = 0; row < labels.size(); ++row) {
    auto& loss = found[0].emplace_back(0);
    auto& rank = found[2].emplace_back(0);
    if (labels[row] < 0) continue;
    const auto label = static_cast<std::size_t>(labels[row]);
    const double* from = x.data() + row * classes;
    double sum = 0;
    for (std::size_t c = 0; c < classes; ++c) sum += std::exp(from[c]);
    for (std::size_t c = 0; c < classes; ++c) {
      const double target = smoothing / classes + (c == label ? 1 - smoothing : 0);
      loss -= target * std::log(std::exp(from[c]) / sum);
      found[1][row * classes + c] = 0.75 * (std::exp(from[c]) / sum - target);
      if (from[c] > from[label] || (from[c] == from[label] && c < label)) ++rank;
    }
  }
  return found;
}

}  // namespace

TEST_CASE_TEMPLATE("cross entropy: matches plain loops, for whole rows and uneven parts", T, double,
                   float, bf16, f16) {
  for (const double smoothing : {0.0, 0.1, 1.0})
    for (const auto& parts : some_parts)
      for (const std::int64_t padding : {0, 5}) {
        check_cross_entropy<T, Cpu>({rows, classes}, smoothing, parts, padding);
        if constexpr (std::is_same_v<T, double>) {
          Side<double, Cpu> side;
          const auto got =
              cross_entropy_results(side, side.elements({rows, classes}, 1),
                                    some_labels(rows, classes), smoothing, parts, padding);
          check_near({got[0], got[1], got[2]}, by_loops(smoothing), 1e-13);
        }
      }
  check_cross_entropy<T, Cpu>({0, 5}, 0.1, {{0, 2}, {2, 5}});
  has_bits_on_threads<T>([](auto& side) {
    return cross_entropy_results(side, side.elements({rows, classes}, 1),
                                 some_labels(rows, classes), 0.1);
  });
}

TEST_CASE_TEMPLATE("cross entropy: equal, far and NaN logits have the right loss and rank", T,
                   double, float, bf16, f16) {
  check_special_logits<T, Cpu>();
}
TEST_CASE("cross entropy: extreme logits neither overflow nor vanish") {
  check_extreme_logits<Cpu>();
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
    const auto labels = tensor_of(dev, Labels{0, wrong});
    const auto expected =
        concat("cross_entropy: label ", wrong, " of row 1 is not among 7 classes (-1: ignored)");
    const auto refused = [&](auto body) { CHECK(message_of(body) == expected); };
    refused([&] { detail::cross_entropy_sums(dev, x, labels, max, options, sums.mut()); });
    refused([&] { detail::cross_entropy_loss(dev, max, sums, labels, options, loss.mut()); });
    refused([&] { detail::cross_entropy_rank(dev, x, sums, labels, options, rank.mut()); });
    refused([&] {
      detail::cross_entropy_backward(dev, x, max, sums, labels, options,
                                     tensor_of(dev, std::vector<double>{1}), out.mut());
    });
  }
}

TEST_CASE("cross entropy: impossible options are refused") {
  Cpu dev;
  const auto x = random_tensor<bf16>(dev, {2, 3}, 1);
  auto max = random_tensor<float>(dev, {2}, 2);
  auto sums = random_tensor<float>(dev, {3, 2}, 3);
  const auto labels = tensor_of(dev, Labels{0, 1});
  const auto of_sums = [&](const CrossEntropyOptions& options) {
    return message_of(
        [&] { detail::cross_entropy_sums(dev, x, labels, max, options, sums.mut()); });
  };
  CHECK(of_sums({.classes = 3}) == "no error");
  CHECK(of_sums({.classes = 5, .first_class = 3}) ==
        "cross_entropy: logits of classes [3, 6) are not among 5");
  CHECK(of_sums({.classes = 5, .first_class = -1}) ==
        "cross_entropy: logits of classes [-1, 2) are not among 5");
  CHECK(of_sums({.classes = 5, .local_classes = 4}) ==
        "cross_entropy: logits of 3 columns cannot have 4 classes");
  CHECK(of_sums({.classes = 3, .smoothing = 1.5}) ==
        "cross_entropy: the smoothing must be in [0, 1], got 1.5");
}

TEST_CASE("cross_entropy_totals: gives the sum and counted rows, with ranks also top-1 and top-5") {
  Cpu dev;
  const auto loss = Tensor<Cpu>::from_host(dev, {5}, std::vector<float>{1, 0, 2.5f, 4, 0});
  const auto labels = Tensor<Cpu>::from_host(dev, {5}, Labels{3, -1, 0, 2, -1});
  const auto rank = Tensor<Cpu>::from_host(dev, {5}, Labels{0, 0, 4, 5, 0});
  Tensor<Cpu> totals(dev, DType::f64, {4});
  detail::cross_entropy_totals(dev, loss, labels, {}, totals.mut());
  CHECK(widened(totals) == std::vector<double>{7.5, 3, 0, 0});
  detail::cross_entropy_totals(dev, loss, labels, rank, totals.mut());
  CHECK(widened(totals) == std::vector<double>{7.5, 3, 1, 2});
}
