// Samples of a function: rows in the requested order, and errors for samples of the wrong length.
#include <dhp/data/function_samples.hpp>
#include <tests/support/tensors.hpp>

namespace {

/// Sample i has i inputs if i is `odd`, otherwise two.
auto samples(std::int64_t odd) {
  return FunctionSamples(10, [odd](std::int64_t index) -> Sample {
    const auto value = static_cast<float>(index);
    return {.input = std::vector<float>(index == odd ? static_cast<std::size_t>(index) : 2, value),
            .target = {-value}};
  });
}

}  // namespace

TEST_CASE("function samples: rows are in the order of the indices") {
  const auto result = samples(-1).collate(std::vector<std::int64_t>{7, 3}, 0);
  CHECK(result.input == HostArray({2, 2}, std::vector<float>{7, 7, 3, 3}));
  CHECK(result.side.front().second == HostArray({2, 1}, std::vector<float>{-7, -3}));
  CHECK(result.counts.front().second == 2);
}

TEST_CASE("function samples: a sample of another length is named, even if the sum would fit") {
  CHECK(has(message_of([] {
              (void)samples(1).collate(std::vector<std::int64_t>{0, 1, 2}, 0);
            }),
            "sample 1 has 1 inputs, and the 1 before it in its micro-batch have 2"));
  const FunctionSamples sums_up(3, [](std::int64_t index) -> Sample {
    return {.input = std::vector<float>(static_cast<std::size_t>(index + 1)), .target = {0}};
  });
  CHECK(has(message_of([&] {
              (void)sums_up.collate(std::vector<std::int64_t>{1, 0, 2}, 0);
            }),
            "sample 0 has 1 inputs"));
}
