// Embedding: lookups by id, gradients added in order, and parts of a vocabulary that agree with the whole one.
#include <dhp/cpu/elementwise.hpp>
#include <dhp/cpu/rows.hpp>
#include <dhp/ops/embedding.hpp>
#include <tests/support/tensors.hpp>

namespace {

using Ids = std::vector<std::int32_t>;
const Ids some_ids{3, 0, 6, 3, 3, 10, 1, 0};  // some ids repeat, most entries have none

}  // namespace

TEST_CASE_TEMPLATE("embedding: rows are gathered by id, and gradients are summed by id", T, double,
                   float, bf16, f16) {
  using A = Accumulator<T>;
  for (const int threads : {1, 2, 3}) {
    Cpu dev({.threads = threads});
    const std::int64_t columns = 150;  // threads get three shares
    const auto table = random_tensor<T>(dev, {11, columns}, 1);
    const auto ids = tensor_of(dev, some_ids);
    Tensor<Cpu> y(dev, dtype_of<T>(), {8, columns});
    embedding_forward(dev, table, ids, 0, y.mut());
    const auto dy = random_tensor<T>(dev, {8, columns}, 2);
    const auto entries = widened(table), taken = widened(y), added = widened(dy);
    for (const double beta : {0.0, 1.0, 0.5}) {
      auto dtable = random_tensor<A>(dev, {11, columns}, 3);
      if (beta == 0) dtable.mut().template data<A>()[5] = static_cast<A>(NAN);  // must not be read
      std::vector<A> expected(static_cast<std::size_t>(11 * columns), A(0));
      const auto before = widened(dtable);
      for (std::size_t at = 0; at < expected.size() && beta != 0; ++at)
        expected[at] = static_cast<A>(beta) * static_cast<A>(before[at]);
      for (std::size_t row = 0; row < some_ids.size(); ++row)
        for (std::size_t c = 0; c < 150; ++c) {
          const auto entry = static_cast<std::size_t>(some_ids[row]) * 150 + c;
          CHECK(taken[row * 150 + c] == entries[entry]);
          expected[entry] += static_cast<A>(added[row * 150 + c]);
        }
      embedding_backward(dev, dy, ids, 0, dtable.mut(), beta);
      CHECK(dtable.template to_host<A>(dev) == expected);
    }
  }
}

TEST_CASE("embedding: without rows the gradient is still written") {
  Cpu dev;
  const auto table = random_tensor<float>(dev, {2, 2}, 1);
  Tensor<Cpu> y(dev, DType::f32, {0, 2});
  embedding_forward(dev, table, tensor_of(dev, Ids{}), 0, y.mut());
  auto dtable = random_tensor<float>(dev, {2, 2}, 1);
  embedding_backward(dev, y, tensor_of(dev, Ids{}), 0, dtable.mut(), 0);
  CHECK(widened(dtable) == std::vector<double>(4, 0.0));
}
