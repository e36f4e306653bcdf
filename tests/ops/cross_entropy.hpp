// Cases of cross-entropy on any device, on parts of the vocabulary.
#pragma once

#include <dhp/ops/cross_entropy.hpp>
#include <dhp/ops/elementwise.hpp>
#include <dhp/ops/rows.hpp>
#include <tests/support/sides.hpp>

namespace tests {

using Labels = std::vector<std::int32_t>;

/// Returns whether both have the same numbers, where NaN equals NaN.
inline bool same_numbers(const std::vector<double>& one, const std::vector<double>& other) {
  return std::equal(one.begin(), one.end(), other.begin(), other.end(),
                    [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); });
}

/// Runs the ops on parts of a vocabulary (none: the whole), each with its own columns and `padding` columns of NaN, and
/// reduces between them like ranks. Returns loss, gradient, rank, totals, maxima and sums.
Results cross_entropy_results(auto& side, const auto& logits, const Labels& wanted,
                              double smoothing = 0, std::vector<Range> parts = {},
                              std::int64_t padding = 0) {
  auto& dev = side.dev;
  if (parts.empty()) parts = {{0, logits.columns()}};
  const auto rows = logits.rows();
  const auto labels = side.tensor({rows}, wanted);
  const auto scale = side.tensor({1}, std::vector{0.75});
  /// Returns a tensor of the accumulation type.
  const auto upload = [&](const Shape& shape, const std::vector<double>& values) {
    auto made = side.fresh_sums(shape);
    cast(dev, side.tensor(shape, values).view(), made.mut());
    return made;
  };
  std::vector<CrossEntropyOptions> options;
  std::vector<std::remove_cvref_t<decltype(logits)>> mine;
  std::vector<double> most(static_cast<std::size_t>(rows), -HUGE_VAL), totals(3 * most.size()),
      ranks(most.size());
  for (const auto part : parts) {
    mine.push_back(side.fresh({rows, part.size() + padding}));
    fill(dev, mine.back().mut(), NAN);
    copy_columns(dev, logits, part.first, mine.back().mut(), 0, part.size());
    options.push_back({.classes = logits.columns(),
                       .first_class = part.first,
                       .smoothing = smoothing,
                       .local_classes = padding == 0 ? -1 : part.size()});
    auto max = side.fresh_sums({rows});
    detail::cross_entropy_max(dev, mine.back(), options.back(), max.mut());
    const auto here = side.values(max.view());
    for (std::size_t at = 0; at < here.size(); ++at) most[at] = std::max(most[at], here[at]);
  }
  const auto max = upload({rows}, most);
  for (std::size_t at = 0; at < parts.size(); ++at) {
    auto sums = side.fresh_sums({3, rows});
    detail::cross_entropy_sums(dev, mine[at], labels, max, options[at], sums.mut());
    const auto here = side.values(sums.view());
    for (std::size_t i = 0; i < here.size(); ++i) totals[i] += here[i];
  }
  const auto sums = upload({3, rows}, totals);
  Results found(6);
  auto gradient = side.fresh(logits.shape()), loss = side.fresh_sums({rows});
  for (std::size_t at = 0; at < parts.size(); ++at) {
    detail::cross_entropy_loss(dev, max, sums, labels, options[at], loss.mut());
    if (at > 0) CHECK(same_numbers(side.values(loss.view()), found[0]));  // equal on all parts
    found[0] = side.values(loss.view());
    auto rank = side.tensor({rows}, Labels(ranks.size()));
    detail::cross_entropy_rank(dev, mine[at], sums, labels, options[at], rank.mut());
    const auto here = rank.template to_host<std::int32_t>(dev);
    for (std::size_t i = 0; i < here.size(); ++i) ranks[i] += here[i];
    auto piece = side.fresh(mine[at].shape());
    detail::cross_entropy_backward(dev, mine[at], max, sums, labels, options[at], scale,
                                   piece.mut());
    copy_columns(dev, piece, 0, gradient.mut(), parts[at].first, parts[at].size());
    const auto values = side.values(piece.view());
    for (std::size_t i = 0; i < values.size(); ++i)
      if (static_cast<std::int64_t>(i) % piece.columns() >= parts[at].size()) CHECK(values[i] == 0);
    detail::cross_entropy_backward(dev, mine[at].view(), max, sums, labels, options[at], scale,
                                   mine[at].mut());
    CHECK(same_numbers(side.values(mine[at].view()), values));  // in place
  }
  auto result = side.tensor({4}, std::vector<double>(4));
  detail::cross_entropy_totals(
      dev, loss, labels, side.tensor({rows}, Labels(ranks.begin(), ranks.end())), result.mut());
  found[1] = side.values(gradient.view());
  found[2] = ranks;
  found[3] = side.values(result.view());
  found[4] = most;
  found[5] = totals;
  return found;
}

/// Labels of all classes; every fifth row has none.
inline Labels some_labels(std::int64_t rows, std::int64_t classes) {
  Labels labels;
  for (std::int64_t row = 0; row < rows; ++row)
    labels.push_back(static_cast<std::int32_t>(row % 5 == 3 ? -1 : row * 31 % classes));
  return labels;
}

template <class T, class Dev>
void check_cross_entropy(const Shape& shape, double smoothing, const std::vector<Range>& parts = {},
                         std::int64_t padding = 0) {
  INFO("shape ", to_text(shape), " smoothing ", smoothing, " parts ", parts.size());
  const auto [got, expected] = Sides<T, Dev>()([&](auto& side) {
    return cross_entropy_results(side, side.elements(shape, 1), some_labels(shape[0], shape[1]),
                                 smoothing, parts, padding);
  });
  const double sum = std::is_same_v<T, double> ? 1e-13 : 3e-6;
  for (const std::size_t at : {0, 3, 5}) CHECK(relative_error(got[at], expected[at]) < sum);
  CHECK(relative_error(got[1], expected[1]) < tolerance<T> + sum);
  for (const std::size_t at : {2, 4}) CHECK(got[at] == expected[at]);
}

/// Checks special logits: equal ones, extreme ones, NaN, and a shift of all, which loses no digits.
template <class T, class Dev>
void check_special_logits() {
  Side<T, Dev> side{tested_device<Dev>()};
  std::vector<double> equal, near, far;
  for (int row = 0; row < 5; ++row)
    for (const double value : {1, 2, 2, -3, 2}) equal.push_back(value);
  for (const auto& parts :
       {std::vector<Range>{{0, 5}}, {{0, 2}, {2, 5}}, {{0, 1}, {1, 4}, {4, 5}}}) {
    // Of equal logits the first is predicted.
    const auto found =
        cross_entropy_results(side, side.exactly({5, 5}, equal), {0, 1, 2, 3, 4}, 0, parts);
    CHECK(found[2] == std::vector<double>{3, 0, 1, 4, 2});
  }

  const double shift = std::is_same_v<T, double>  ? 0x1p40
                       : std::is_same_v<T, float> ? 0x1p20
                       : std::is_same_v<T, f16>   ? 1024
                                                  : 128;
  for (int at = 0; at < 11 * 37; ++at) {
    near.push_back(at * 31 % 8);  // T holds these integers also when `shift` is added
    far.push_back(near.back() + shift);
  }
  for (const double smoothing : {0.0, 0.1, 1.0})
    for (const auto& parts : {std::vector<Range>(), {{0, 13}, {13, 37}}}) {
      const auto loss_of = [&](auto& on, const auto& values) {
        return cross_entropy_results(on, on.exactly({11, 37}, values), some_labels(11, 37),
                                     smoothing, parts)[0];
      };
      Side<T, Cpu, true> oracle;
      CHECK(distance(loss_of(side, far), loss_of(oracle, near)) <
            (std::is_same_v<T, double> ? 1e-13 : 3e-6));
    }

  // NaN affects its own row only and is no right prediction.
  const auto found = cross_entropy_results(
      side, side.exactly({4, 2}, {NAN, 0, 0, NAN, NAN, 0, 1, 0}), {0, 0, -1, 0});
  const auto &loss = found[0], &gradient = found[1], &rank = found[2];
  CHECK((std::isnan(loss[0]) && std::isnan(loss[1]) && std::isnan(gradient[0])));
  CHECK((loss[2] == 0 && gradient[4] == 0));
  CHECK(loss[3] == Approx(std::log1p(std::exp(-1.0))));
  CHECK((rank[0] > 0 && rank[1] > 0 && rank[2] == 0 && rank[3] == 0));
  CHECK(std::isnan(found[3][0]));
}

template <class Dev>
void check_extreme_logits() {
  Side<float, Dev> side{tested_device<Dev>()};
  const auto found =
      cross_entropy_results(side, side.exactly({2, 3}, {9000, 9001, -9000, -500, -500, -0x1p100}),
                            {0, 2}, 0, {{0, 2}, {2, 3}});
  CHECK(distance(found[0], {1 + std::log1p(std::exp(-1)), 0x1p100 - 500 + std::log(2)}, 0x1p100) <
        1e-6);
  CHECK(found[0][0] == Approx(1 + std::log1p(std::exp(-1))).epsilon(1e-6));
  CHECK(distance(found[1], {-0.5482939, 0.5482939, 0, 0.375, 0.375, -0.75}) < 1e-6);
  CHECK(found[2] == std::vector<double>{1, 2});
}

}  // namespace tests
