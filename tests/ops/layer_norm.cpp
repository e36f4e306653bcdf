// Layer normalization on the Cpu, against loops in double.
#include <dhp/cpu/elementwise.hpp>
#include <dhp/cpu/layer_norm.hpp>
#include <tests/ops/layer_norm.hpp>

namespace {

/// Computes the results by plain loops.
Results by_loops(const NormCase& each) {
  Side<double, Cpu> side;
  const auto columns = static_cast<std::size_t>(each.shape.back());
  const auto width = static_cast<double>(columns);
  const auto drawn = [&](const Shape& shape, std::uint32_t use) {
    return side.values(side.elements(shape, use).view());
  };
  const Shape per_column{each.shape.back()}, per_row{each.shape.rows()};
  const auto x = drawn(each.shape, 1), dy = drawn(each.shape, 2), gamma = drawn(per_column, 3),
             shift = drawn(per_column, 8), means = drawn(per_row, 4), inverses = drawn(per_row, 5);
  Results found{x, {}, dy, drawn(per_column, 6), drawn(per_column, 7), {}};
  auto &y = found[0], &dx = found[2], &dgamma = found[3], &dbeta = found[4];
  for (auto* sums : {&dgamma, &dbeta})
    for (auto& value : *sums) value *= each.beta;
  for (std::size_t row = 0; row < inverses.size(); ++row) {
    const auto at = [&](std::size_t c) { return row * columns + c; };
    double mean = 0, variance = 0, sum = 0, product = 0;
    for (std::size_t c = 0; c < columns && !each.rms; ++c) mean += x[at(c)] / width;
    for (std::size_t c = 0; c < columns; ++c) variance += std::pow(x[at(c)] - mean, 2) / width;
    found[1].push_back(1 / std::sqrt(variance + 1e-2));
    found[5].push_back(mean);
    // The backward pass gets statistics that are not those of x, to show that it uses what it gets.
    const auto normal = [&](std::size_t c) {
      return (x[at(c)] - (each.rms ? 0 : means[row])) * inverses[row];
    };
    for (std::size_t c = 0; c < columns; ++c) {
      y[at(c)] = (x[at(c)] - mean) * found[1].back() * gamma[c] + (each.rms ? 0 : shift[c]);
      dgamma[c] += dy[at(c)] * normal(c);
      dbeta[c] += dy[at(c)];
      sum += each.rms ? 0 : dy[at(c)] * gamma[c] / width;
      product += dy[at(c)] * gamma[c] * normal(c) / width;
    }
    for (std::size_t c = 0; c < columns; ++c)
      dx[at(c)] = inverses[row] * (dy[at(c)] * gamma[c] - sum - normal(c) * product);
  }
  if (each.rms) found.resize(4);
  return found;
}

}  // namespace

TEST_CASE_TEMPLATE("layer norm and RMS norm match plain loops, rounded to each type", T, double,
                   float, bf16, f16) {
  for (const auto& shape : {Shape{0, 4}, {1, 3}, {17, 16}, {2, 9, 33}, {130, 100}})
    for (const bool rms : {false, true}) {
      CAPTURE(to_text(shape));
      const NormCase each{.shape = shape, .rms = rms, .beta = shape.rank() == 3 ? 0 : 0.5};
      check_norm<T, Cpu>(each);
      if constexpr (std::is_same_v<T, double>) {
        Side<double, Cpu> side;
        const auto got = norm_results(side, each), expected = by_loops(each);
        REQUIRE(got.size() == expected.size());
        for (std::size_t at = 0; at < got.size(); ++at)
          CHECK(distance(got[at], expected[at]) < 1e-12);
      }
    }
}

TEST_CASE_TEMPLATE("layer norm and RMS norm: threads and in-place use change no bit", T, double,
                   float, bf16, f16) {
  for (const bool rms : {false, true}) {
    NormCase each{.shape = {300, 45}, .rms = rms};
    has_bits_on_threads<T>([&](auto& side) { return norm_results(side, each); });
    Side<T, Cpu> side;
    const auto apart = norm_results(side, each);
    each.in_place = true;
    CHECK(norm_results(side, each) == apart);
  }
}

TEST_CASE_TEMPLATE("residual layer norm: matches dropout, a sum and a norm, also in place", T,
                   double, float, bf16, f16) {
  for (const auto& shape : {Shape{0, 4}, {1, 3}, {17, 16}, {2, 9, 33}, {40, 131}})
    for (const double p : {0.0, 0.3})
      check_residual<T, Cpu>({.shape = shape, .p = p, .numbered = shape.back() == 16});
  for (const auto over : {ResidualCase::x, ResidualCase::residual, ResidualCase::y})
    check_residual<T, Cpu>({.shape = {70, 45}, .over = over});
  has_bits_on_threads<T>([](auto& side) { return residual_results(side, {.shape = {70, 45}}); });
}

TEST_CASE("residual layer norm: with probability 0 no random number is drawn") {
  // The step's address is invalid, so drawing a random number would crash.
  const auto* nowhere = reinterpret_cast<const std::uint32_t*>(std::uintptr_t{64});
  check_residual<float, Cpu>({.shape = {5, 12}, .p = 0, .random = {.series_at = nowhere}});
}

TEST_CASE("layer norm: a large mean loses no digits") { check_digits_of_large_means<Cpu>(); }

TEST_CASE("residual layer norm: partial rows are refused") {
  Side<float, Cpu> side;
  auto& dev = side.dev;
  const auto x = side.elements({3, 4}, 1), four = side.sums({4}, 2);
  auto y = side.fresh({3, 4}), mean = side.fresh({3}), inv_std = side.fresh({3}),
       sum = side.fresh({4});
  for (const auto& [total, words] :
       {std::pair{20, "layer_norm: rows have only 4 of their 20 columns"},
        {3, "dropout: columns from 0 of [3, 4] are not among 3"}}) {
    const DropoutOptions partial{.total_columns = total};
    CHECK(message_of([&] {
            detail::residual_layer_norm_forward(dev, x, x, {}, partial, four, four, 0, y.mut(),
                                                y.mut(), mean.mut(), inv_std.mut());
          }) == words);
    CHECK(message_of([&] {
            detail::residual_layer_norm_backward(dev, x, x, four, mean, inv_std, {}, partial,
                                                 y.mut(), y.mut(), sum.mut(), sum.mut(), 0);
          }) == words);
  }
}
