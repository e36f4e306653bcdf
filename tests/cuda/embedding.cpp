// Embedding on the GPU: rows by id; gradients of entries with few rows, with many, with all of
// them.
#include <dhp/cpu/embedding.hpp>
#include <dhp/cuda/embedding.hpp>
#include <tests/cuda/gpu.hpp>

#include <doctest/doctest.h>

using namespace dhp;
using namespace tests;

namespace {

Tensor<Gpu> ids_on(Gpu& gpu, const std::vector<std::int32_t>& ids) {
  return Tensor<Gpu>::from_host(gpu, {static_cast<std::int64_t>(ids.size())}, ids);
}
// Words as in a text: some often, most rarely.
std::vector<std::int32_t> words(std::int64_t rows, std::int32_t entries) {
  const RandomStream random{.seed = 3};
  std::vector<std::int32_t> ids;
  for (std::int64_t row = 0; row < rows; ++row) {
    const double u = random.uniform(static_cast<std::uint64_t>(row));
    ids.push_back(static_cast<std::int32_t>(u * u * u * entries));
  }
  return ids;
}
// dtable after the backward pass, which starts from random values.
template <class T>
std::vector<double> gradient(Gpu& gpu, const std::vector<std::int32_t>& ids, std::int64_t columns,
                             std::int64_t first, std::int64_t entries, double beta) {
  const auto rows = static_cast<std::int64_t>(ids.size());
  auto dtable = random_on<Accumulator<T>>(gpu, {first + entries, columns}, 3);
  embedding_backward(gpu, random_on<T>(gpu, {rows, columns}, 2), ids_on(gpu, ids), first,
                     dtable.mut().slice(first, first + entries), beta);
  return widened(gpu, dtable);
}
template <class T>
std::vector<double> right_gradient(const std::vector<std::int32_t>& ids, std::int64_t columns,
                                   std::int64_t entries, double beta) {
  Cpu cpu;
  const auto rows = static_cast<std::int64_t>(ids.size());
  auto dtable = oracle_of<Accumulator<T>>(cpu, {entries, columns}, 3);
  embedding_backward(cpu, oracle_of<T>(cpu, {rows, columns}, 2),
                     Tensor<Cpu>::from_host(cpu, {rows}, ids), 0, dtable.mut(), beta);
  return widened(dtable);
}
template <class T>
constexpr double sum_tolerance = tolerance<Accumulator<T>>;

}  // namespace

TEST_CASE_TEMPLATE("rows by id, zero for an id of another part", T, double, float, bf16, f16) {
  Gpu gpu;
  Cpu cpu;
  const std::vector<std::int32_t> ids{3, 0, 6, 3, 10, 1, -4, 11, 0};
  for (const std::int64_t columns : {3, 40})
    for (const std::int64_t first : {0, 2}) {
      auto y = random_on<T>(gpu, {9, columns}, 4);
      embedding_forward(gpu, random_on<T>(gpu, {8, columns}, 1), ids_on(gpu, ids), first, y.mut());
      Tensor<Cpu> right(cpu, dtype_of<T>(), Shape{9, columns});
      embedding_forward(cpu, random_tensor<T>(cpu, {8, columns}, 1),
                        Tensor<Cpu>::from_host(cpu, {9}, ids), first, right.mut());
      CHECK(widened(gpu, y) == widened(right));
    }
}

TEST_CASE_TEMPLATE("gradients by id, any beta", T, double, float, bf16, f16) {
  Gpu gpu;
  for (const std::int64_t columns : {5, 264}) {
    const auto ids = words(280, 60);
    for (const double beta : {0.0, 1.0, 0.5}) {
      CAPTURE(columns);
      CAPTURE(beta);
      CHECK(relative_error(gradient<T>(gpu, ids, columns, 0, 60, beta),
                           right_gradient<T>(ids, columns, 60, beta)) <= sum_tolerance<T>);
    }
  }
}

TEST_CASE_TEMPLATE("two entries for all rows, or one", T, double, bf16) {
  Gpu gpu;
  for (const std::int64_t columns : {5, 72})
    for (const bool both : {false, true}) {
      std::vector<std::int32_t> ids(330, 0);
      for (std::size_t at = 0; at < ids.size() && both; ++at) ids[at] = at % 128 > 50 ? 1 : 0;
      CHECK(relative_error(gradient<T>(gpu, ids, columns, 0, 2, 1),
                           right_gradient<T>(ids, columns, 2, 1)) <= sum_tolerance<T>);
    }
}

TEST_CASE("many entries, of more than one digit of the sort") {
  Gpu gpu;
  const auto ids = words(1030, 300);
  CHECK(relative_error(gradient<float>(gpu, ids, 2, 0, 300, 0),
                       right_gradient<float>(ids, 2, 300, 0)) <= sum_tolerance<float>);
}

TEST_CASE_TEMPLATE("a part of a vocabulary gets the bits of the whole", T, float, bf16) {
  Gpu gpu;
  const auto ids = words(500, 12);  // lists of parts and lists without
  const auto whole = gradient<T>(gpu, ids, 9, 0, 12, 1);
  for (const auto part : {Range{0, 1}, {1, 7}, {7, 12}}) {
    const auto got = gradient<T>(gpu, ids, 9, part.first, part.size(), 1);
    const auto from = static_cast<std::ptrdiff_t>(part.first * 9);
    const auto to = static_cast<std::ptrdiff_t>(part.last * 9);
    CHECK(std::equal(got.begin() + from, got.end(), whole.begin() + from, whole.begin() + to));
  }
}

TEST_CASE("where beta is 0 the old gradient is not read; entries without rows are written") {
  Gpu gpu;
  for (const std::size_t rows : {std::size_t{0}, std::size_t{3}, std::size_t{70}}) {
    Tensor<Gpu> dtable(gpu, DType::f32, {3, 2});
    const std::vector<float> poison(6, NAN);
    gpu.copy_from_host(dtable.mut().bytes(), reinterpret_cast<const std::byte*>(poison.data()),
                       dtable.size_bytes());
    const std::vector<float> ones(rows * 2, 1.0f);
    const auto dy = Tensor<Gpu>::from_host(gpu, {static_cast<std::int64_t>(rows), 2}, ones);
    embedding_backward(gpu, dy, ids_on(gpu, std::vector<std::int32_t>(rows, 1)), 0, dtable.mut(),
                       0);
    const auto sum = static_cast<double>(rows);
    CHECK(widened(gpu, dtable) == std::vector<double>{0, 0, sum, sum, 0, 0});
  }
}

TEST_CASE("gradients of one id are added in the order of the rows") {
  Gpu gpu;
  // In this order the first two cancel; in any other the 1 is lost.
  const auto dy = Tensor<Gpu>::from_host(gpu, {3, 1}, std::vector<float>{1e30f, -1e30f, 1.0f});
  Tensor<Gpu> dtable(gpu, DType::f32, {2, 1});
  embedding_backward(gpu, dy, ids_on(gpu, {1, 1, 1}), 0, dtable.mut(), 0);
  CHECK(widened(gpu, dtable) == std::vector<double>{0, 1});
}
