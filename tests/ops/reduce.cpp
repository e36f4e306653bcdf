// Reductions on the Cpu, against plain sums. NaN and infinities are found at every position.
#include <dhp/cpu/elementwise.hpp>
#include <dhp/cpu/reduce.hpp>
#include <tests/ops/reduce.hpp>

TEST_CASE_TEMPLATE("reductions: column_sums adds to beta times the old values", T, double, float,
                   bf16, f16) {
  // Numbers of rows near the tile of 128, numbers of columns near the vector width.
  for (const auto& shape : {Shape{0, 5}, {1, 1}, {3, 7}, {129, 33}, {2, 70, 8}, {1000, 1}})
    for (const double beta : {0.0, 1.0, -0.5}) {
      const ColumnSums each{.shape = shape, .beta = beta};
      check_column_sums<T, Cpu>(each);
      if constexpr (std::is_same_v<T, double>) {
        Side<double, Cpu> side;
        const auto values = widened(side.elements({shape.count()}, 1));
        auto right = widened(side.sums({shape.back()}, 2));
        for (auto& value : right) value *= beta;
        for (std::size_t i = 0; i < values.size(); ++i) right[i % right.size()] += values[i];
        CHECK(distance(column_sum_results(side, each)[0], right) < 1e-12);
      }
    }
}

TEST_CASE_TEMPLATE("reductions: totals are accumulated in double, and threads change no bit", T,
                   double, float, bf16, f16) {
  for (const std::int64_t count : {0, 1, 17, 40000}) check_totals<T, Cpu>(count);
  has_bits_on_threads<T>([](auto& side) {
    auto found = total_results(side, 62000);
    found.push_back(column_sum_results(side, {.shape = {2000, 31}})[0]);
    return found;
  });
}

TEST_CASE_TEMPLATE("reductions: count_nonfinite finds infinity and NaN anywhere", T, double, float,
                   bf16, f16) {
  check_count_nonfinite<T, Cpu>((1 << 16) + 9, 0);
}

TEST_CASE("reductions: an error has the operation's line") {
  Cpu dev;
  auto sums = random_tensor<double>(dev, {4}, 2);
  try {
    sum(dev, sums, sums.mut());
  } catch (const Error& error) {
    CHECK(error.sentence() == "sum: the result [4] of f64 does not fit; make it [1] of f64");
    CHECK(to_text(error.where()).starts_with("reduce.hpp:"));
  }
}
