// Embedding on the GPU: lookups by id, and gradients of entries with few, many and all rows.
#include <dhp/cpu/rows.hpp>
#include <dhp/cuda/rows.hpp>
#include <dhp/ops/embedding.hpp>
#include <tests/cuda/gpu.hpp>

namespace {

// Returns ids like the words of a text: some are frequent, most are rare.
std::vector<std::int32_t> words(std::int64_t rows, std::int32_t entries) {
  const RandomStream random{.seed = 3};
  std::vector<std::int32_t> ids;
  for (std::int64_t row = 0; row < rows; ++row) {
    const double u = random.uniform(static_cast<std::uint64_t>(row));
    ids.push_back(static_cast<std::int32_t>(u * u * u * entries));
  }
  return ids;
}
// Returns dtable after the backward pass; dtable starts with random values.
std::vector<double> gradient(auto& side, const std::vector<std::int32_t>& ids, std::int64_t columns,
                             Range part, double beta) {
  const auto rows = static_cast<std::int64_t>(ids.size());
  auto dtable = side.sums({part.last, columns}, 3);
  embedding_backward(side.dev, side.elements({rows, columns}, 2), side.tensor({rows}, ids),
                     part.first, dtable.mut().slice(part.first, part.last), beta);
  return side.values(dtable.view());
}
template <class T>
void same_gradient(const std::vector<std::int32_t>& ids, std::int64_t columns, std::int64_t entries,
                   double beta) {
  INFO("columns ", columns, " beta ", beta);
  const auto run = [&](auto& side) -> Results {
    return {gradient(side, ids, columns, {0, entries}, beta)};
  };
  agrees_with_cpu<T>(run, tolerance<Accumulator<T>>);
}

}  // namespace

TEST_CASE_TEMPLATE("embedding forward gathers rows by id, zero for ids of another part", T, double,
                   float, bf16, f16) {
  const std::vector<std::int32_t> ids{3, 0, 6, 3, 10, 1, -4, 11, 0};
  for (const std::int64_t columns : {3, 40})
    for (const std::int64_t first : {0, 2}) {
      has_bits_of_cpu<T>([&](auto& side) -> Results {
        auto y = side.fresh({9, columns});
        embedding_forward(side.dev, side.elements({8, columns}, 1), side.tensor({9}, ids), first,
                          y.mut());
        return side.results(y);
      });
    }
}

TEST_CASE_TEMPLATE("embedding gradients agree with the Cpu for any beta", T, double, float, bf16,
                   f16) {
  for (const std::int64_t columns : {5, 264})
    for (const double beta : {0.0, 1.0, 0.5}) same_gradient<T>(words(280, 60), columns, 60, beta);
}

TEST_CASE_TEMPLATE("embedding gradients agree if all rows have one or two ids", T, double, bf16) {
  for (const std::int64_t columns : {5, 72})
    for (const bool both : {false, true}) {
      std::vector<std::int32_t> ids(330, 0);
      for (std::size_t at = 0; at < ids.size() && both; ++at) ids[at] = at % 128 > 50 ? 1 : 0;
      same_gradient<T>(ids, columns, 2, 1);
    }
}

TEST_CASE("embedding gradients agree for ids of more than one sort digit") {
  same_gradient<float>(words(1030, 300), 2, 300, 0);
}

TEST_CASE_TEMPLATE("embedding gradients of a part of the vocabulary have the bits of the whole", T,
                   float, bf16) {
  Side<T, Gpu> side;
  const auto ids = words(500, 12);  // lists with and without parts
  const auto whole = gradient(side, ids, 9, {0, 12}, 1);
  for (const auto part : {Range{0, 1}, {1, 7}, {7, 12}}) {
    const auto got = gradient(side, ids, 9, part, 1);
    const auto from = static_cast<std::ptrdiff_t>(part.first * 9);
    const auto to = static_cast<std::ptrdiff_t>(part.last * 9);
    CHECK(std::equal(got.begin() + from, got.end(), whole.begin() + from, whole.begin() + to));
  }
}

TEST_CASE("embedding gradients with beta 0 ignore the old values; unused entries become 0") {
  Side<float, Gpu> side;
  for (const std::int64_t rows : {0, 3, 70}) {
    const auto count = static_cast<std::size_t>(rows);
    auto dtable = side.tensor({3, 2}, std::vector<float>(6, NAN));
    embedding_backward(side.dev, side.tensor({rows, 2}, std::vector(2 * count, 1.0f)),
                       side.tensor({rows}, std::vector<std::int32_t>(count, 1)), 0, dtable.mut(),
                       0);
    const auto sum = static_cast<double>(rows);
    CHECK(side.values(dtable.view()) == std::vector<double>{0, 0, sum, sum, 0, 0});
  }
}
