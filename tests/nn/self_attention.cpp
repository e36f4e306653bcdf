// Self-attention with a key-value cache: rows one by one have the results of all rows at once.
#include <dhp/cpu.hpp>
#include <dhp/nn/self_attention.hpp>
#include <tests/support/gradients.hpp>

namespace {

constexpr int rows = 5, columns = 8;

MicroBatch<Cpu> batch_of(Cpu& dev, int first, int count) {
  std::vector<std::int32_t> positions;
  std::vector<std::int64_t> numbers;
  for (int row = first; row < first + count; ++row)
    positions.push_back(row), numbers.push_back(row);
  MicroBatch<Cpu> batch;
  batch.samples = 1;
  batch.side.emplace_back("offsets", tensor_of<std::int32_t>(dev, {0, count}));
  batch.side.emplace_back("lengths", tensor_of<std::int32_t>(dev, {count}));
  batch.side.emplace_back("row_numbers", tensor_of(dev, numbers));
  batch.side.emplace_back("positions", tensor_of(dev, positions));
  return batch;
}

}  // namespace

TEST_CASE("self-attention: layers with a cache give the same rows, also if they share weights") {
  Cpu dev;
  ModelBuilder<Cpu> build(Comm<Cpu>{});
  const SelfAttentionOptions options{
      .heads = 2, .columns = columns, .max_length = rows, .causal = true};
  for (const bool shared : {false, true}) {
    SelfAttention<Cpu> one(build, concat("one", shared), options);
    auto two = shared ? one : SelfAttention<Cpu>(build, "two", options);
    ParameterList<Cpu> parameters;
    one.parameters(parameters);
    if (!shared) two.parameters(parameters);
    const ParameterStore<Cpu> store(dev, parameters, {.compute = DType::f64});
    const auto x = random_tensor<double>(dev, {rows, columns}, 1);
    const auto pass = [&](const MicroBatch<Cpu>& batch, Range of) {
      Tape<Cpu> tape({.mode = StepContext::Mode::eval}, &batch);
      return widened(
          dev, two.forward(dev, one.forward(dev, clone(dev, x.view().slice(of)), tape), tape));
    };
    const auto expected = pass(batch_of(dev, 0, rows), {0, rows});
    const auto cache = std::make_shared<MicroBatch<Cpu>::Cache>();
    cache->capacity = rows;
    for (int row = 0; row < rows; ++row) {
      auto batch = batch_of(dev, row, 1);
      batch.cache = cache;
      const auto y = pass(batch, {row, row + 1});
      for (int column = 0; column < columns; ++column)
        CHECK(y[dhp::detail::as_size(column)] ==
              Approx(expected[dhp::detail::as_size(row * columns + column)]).epsilon(1e-12));
    }
  }
}
