// What the lessons share: ranks that return what they saw, numbers that all ranks know, and a table of what was counted
// beside what a formula says.
#pragma once

#include <dhp/default_device.hpp>
#ifdef DHP_HAS_NCCL
#include <dhp/comm/nccl/launch.hpp>  // ranks on GPUs
#endif

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <type_traits>
#include <vector>

namespace toy {

using Dev = dhp::DefaultDevice;

/// What body(world) returns on each of so many ranks.
template <class D = Dev, class Body>
[[nodiscard]] auto on_each_rank(int ranks, Body body) {
  std::vector<std::invoke_result_t<Body&, dhp::Comm<D>>> results(static_cast<std::size_t>(ranks));
  dhp::run_ranks<D>(ranks, [&](dhp::Comm<D> world) {
    results[static_cast<std::size_t>(world.rank())] = body(world);
  });
  return results;
}

/// Random numbers in [-0.5, 0.5), others for each `which`, the same on every rank.
[[nodiscard]] inline dhp::Tensor<Dev> noise(Dev& dev, const dhp::Shape& shape, int which) {
  const dhp::RandomStream random{.seed = 7, .series = static_cast<std::uint32_t>(which)};
  std::vector<float> values;
  for (std::uint64_t at = 0; at < static_cast<std::uint64_t>(shape.count()); ++at)
    values.push_back(static_cast<float>(random.uniform(at) - 0.5));
  return dhp::Tensor<Dev>::from_host(dev, shape, values);
}

/// Lines of a table. It remembers whether every count was what its formula says.
class Ledger {
 public:
  explicit Ledger(const char* what = "bytes of one rank") {
    std::printf("%-52s %10s %10s\n", what, "counted", "formula");
  }
  void line(const char* what, auto counted_value, auto formula_value) {
    const auto counted = static_cast<double>(counted_value);
    const auto formula = static_cast<double>(formula_value);
    const bool agrees = std::abs(counted - formula) < 1e-3;  // thirds of a byte are rounded
    std::printf("%-52s %10.0f %10.0f%s\n", what, counted, formula, agrees ? "" : "  <- differs");
    agrees_ = agrees_ && agrees;
  }
  [[nodiscard]] bool agrees() const { return agrees_; }

 private:
  bool agrees_ = true;
};

/// Whether two lists are the same up to the rounding of fp32.
[[nodiscard]] inline bool alike(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, largest = 0;
  for (std::size_t at = 0; at < std::min(a.size(), b.size()); ++at) {
    difference = std::max(difference, std::abs(static_cast<double>(a[at]) - b[at]));
    largest = std::max(largest, std::abs(static_cast<double>(b[at])));
  }
  return a.size() == b.size() && difference <= 1e-6 * largest;
}

/// The ranks 0 ... n - 1, as the counter of calls names the whole world.
[[nodiscard]] inline dhp::CallCounts::Group everybody(int ranks) {
  dhp::CallCounts::Group group;
  for (int rank = 0; rank < ranks; ++rank) group.push_back(rank);
  return group;
}

}  // namespace toy
