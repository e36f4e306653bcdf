// Helpers of the lessons: ranks that return results, random numbers that all ranks know, and counts beside formulas.
#pragma once

#include <dhp/default_device.hpp>
#ifdef DHP_HAS_NCCL
#include <dhp/comm/nccl/launch.hpp>  // ranks on GPUs
#endif

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <type_traits>
#include <vector>

namespace toy {

using Dev = dhp::DefaultDevice;

/// Returns the results of body(world, more...) on each rank.
template <class D = Dev, class Body, class... More>
[[nodiscard]] auto on_each_rank(int ranks, Body body, const More&... more) {
  std::vector<std::invoke_result_t<Body&, dhp::Comm<D>, const More&...>> results(
      static_cast<std::size_t>(ranks));
  dhp::run_ranks<D>(ranks, [&](dhp::Comm<D> world) {
    results[static_cast<std::size_t>(world.rank())] = body(world, more...);
  });
  return results;
}

/// A rank's device, and its communicator of all ranks, whose calls are counted in `counts`.
struct CountedRank {
  explicit CountedRank(const dhp::Comm<Dev>& plain_world)
      : world(counted(dev, plain_world, counts)) {}
  Dev dev{};
  std::shared_ptr<dhp::CallCounts> counts = std::make_shared<dhp::CallCounts>();
  dhp::Comm<Dev> world;
};

/// Returns random numbers in [-0.5, 0.5), different for each `which`, the same on every rank.
[[nodiscard]] inline dhp::Tensor<Dev> noise(Dev& dev, const dhp::Shape& shape, int which) {
  const dhp::RandomStream random{.seed = 7, .series = static_cast<std::uint32_t>(which)};
  std::vector<float> values;
  for (std::uint64_t at = 0; at < static_cast<std::uint64_t>(shape.count()); ++at)
    values.push_back(static_cast<float>(random.uniform(at) - 0.5));
  return dhp::Tensor<Dev>::from_host(dev, shape, values);
}

/// Makes micro-batch k of inputs and their targets, both with a row for each sample.
[[nodiscard]] inline dhp::MicroBatch<Dev> micro_batch(std::int64_t k, dhp::Tensor<Dev> input,
                                                      dhp::Tensor<Dev> targets) {
  dhp::MicroBatch<Dev> result;
  result.index = k;
  result.samples = input.rows();
  result.first_sample = k * result.samples;
  result.counts = {{"elements", targets.count()}};
  result.input = std::move(input);
  result.side.emplace_back("targets", std::move(targets));
  return result;
}
/// Returns micro-batches of noise, each with `rows` samples of `inputs` inputs and `targets` targets.
[[nodiscard]] inline std::vector<dhp::MicroBatch<Dev>> noise_batches(Dev& dev, int micro_batches,
                                                                     std::int64_t rows,
                                                                     std::int64_t inputs,
                                                                     std::int64_t targets) {
  std::vector<dhp::MicroBatch<Dev>> batches;
  for (int k = 0; k < micro_batches; ++k)
    batches.push_back(micro_batch(k, noise(dev, {rows, inputs}, k),
                                  noise(dev, {rows, targets}, micro_batches + k + 1)));
  return batches;
}
/// Returns some rows and columns of a matrix.
[[nodiscard]] inline dhp::Tensor<Dev> block(Dev& dev, const dhp::Tensor<Dev>& whole,
                                            dhp::Range rows, dhp::Range columns) {
  const auto values = whole.to_host<float>(dev);
  std::vector<float> part;
  for (auto row = rows.first; row < rows.last; ++row)
    for (auto column = columns.first; column < columns.last; ++column)
      part.push_back(values[static_cast<std::size_t>(row * whole.columns() + column)]);
  return dhp::Tensor<Dev>::from_host(dev, {rows.size(), columns.size()}, part);
}
/// Returns the bytes of an optimizer's state.
[[nodiscard]] std::size_t state_bytes(auto& optimizer) {
  std::size_t bytes = 0;
  for (const auto& state : optimizer.state())
    if (!state.narrow_only) bytes += state.buffer->size_bytes();
  return bytes;
}

/// Prints lines of a table and remembers whether every count equals its formula.
class Ledger {
 public:
  explicit Ledger(const char* what = "bytes of one rank") {
    std::printf("%-52s %10s %10s\n", what, "counted", "formula");
  }
  void line(const char* what, auto counted_value, auto formula_value) {
    const auto counted = static_cast<double>(counted_value);
    const auto formula = static_cast<double>(formula_value);
    const bool agrees = std::abs(counted - formula) < 1e-3;  // fractions of a byte are rounded
    std::printf("%-52s %10.0f %10.0f%s\n", what, counted, formula, agrees ? "" : "  <- differs");
    agrees_ = agrees_ && agrees;
  }
  [[nodiscard]] bool agrees() const { return agrees_; }

 private:
  bool agrees_ = true;
};

/// Returns a lesson's exit status: 0 if its numbers are right and its output could be written, else 1.
[[nodiscard]] inline int status(bool correct) {
  const bool printed = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (!printed) std::fputs("what the lesson printed cannot be written\n", stderr);
  return correct && printed ? 0 : 1;
}

/// Returns whether two lists are the same up to fp32 rounding.
[[nodiscard]] inline bool all_close(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, largest = 0;
  for (std::size_t at = 0; at < std::min(a.size(), b.size()); ++at) {
    difference = std::max(difference, std::abs(static_cast<double>(a[at]) - b[at]));
    largest = std::max(largest, std::abs(static_cast<double>(b[at])));
  }
  return a.size() == b.size() && difference <= 1e-6 * largest;
}

/// Returns the ranks 0 ... n - 1, the call counter's name for the whole world.
[[nodiscard]] inline dhp::CallCounts::Group all_ranks(int ranks) {
  dhp::CallCounts::Group group;
  for (int rank = 0; rank < ranks; ++rank) group.push_back(rank);
  return group;
}

}  // namespace toy
