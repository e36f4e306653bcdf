// FunctionSamples is a batcher of the samples that a function computes, or looks up in arrays.
#pragma once

#include <dhp/data/collate.hpp>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace dhp {

struct Sample {
  std::vector<float> input{}, target{};
};

/// Makes batches of input [N, inputs] and side input "targets" [N, targets], as MeanSquaredError takes them.
template <class F>
class FunctionSamples {
 public:
  /// of(index) returns the Sample, the same each time; several threads call it.
  FunctionSamples(std::int64_t size, F of) : size_(size), of_(std::move(of)) {}

  [[nodiscard]] std::int64_t size() const { return size_; }
  [[nodiscard]] HostBatch collate(std::span<const std::int64_t> indices, std::int64_t) const {
    std::vector<float> inputs, targets;
    for (const auto index : indices) {
      const auto sample = naming_sample(index, [&]() -> Sample { return of_(index); });
      inputs.insert(inputs.end(), sample.input.begin(), sample.input.end());
      targets.insert(targets.end(), sample.target.begin(), sample.target.end());
    }
    HostBatch made;
    made.input = rows(indices.size(), inputs, "input");
    made.side.emplace_back("targets", rows(indices.size(), targets, "target"));
    made.counts = {{"elements", std::ssize(targets)}};
    return made;
  }

 private:
  [[nodiscard]] static HostArray rows(std::size_t count, const std::vector<float>& all,
                                      const char* what) {
    check(all.size() % count == 0, "samples differ in the length of their ", what);
    const auto width = static_cast<std::int64_t>(all.size() / count);
    return {{static_cast<std::int64_t>(count), width}, all};
  }

  std::int64_t size_;
  F of_;
};

}  // namespace dhp
