// FunctionSamples: a batcher whose samples a function computes, or looks up in arrays.
#pragma once

#include <dhp/core/append.hpp>
#include <dhp/data/collate.hpp>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace dhp {

struct Sample {
  std::vector<float> input{}, target{};
};

/// Makes batches with input [N, inputs] and side input "targets" [N, targets], as MeanSquaredError expects.
template <class F>
class FunctionSamples {
 public:
  /// of(index) returns a Sample. It must be pure, because several threads call it.
  FunctionSamples(std::int64_t size, F of) : size_(size), of_(std::move(of)) {}

  [[nodiscard]] std::int64_t size() const { return size_; }
  [[nodiscard]] HostBatch collate(std::span<const std::int64_t> indices, std::int64_t) const {
    std::vector<float> inputs, targets;
    std::int64_t rows = 0;
    for (const auto index : indices) {
      const auto sample = naming_sample(index, [&]() -> Sample { return of_(index); });
      append(index, "inputs", sample.input, rows, inputs);
      append(index, "targets", sample.target, rows, targets);
      ++rows;
    }
    HostBatch result;
    result.input = HostArray({rows, std::ssize(inputs) / rows}, inputs);
    result.side.emplace_back("targets", HostArray({rows, std::ssize(targets) / rows}, targets));
    result.counts = {{"elements", std::ssize(targets)}};
    return result;
  }

 private:
  /// to: the values of the `rows` samples before this one.
  static void append(std::int64_t index, const char* what, const std::vector<float>& values,
                     std::int64_t rows, std::vector<float>& to) {
    check(rows * std::ssize(values) == std::ssize(to), "sample ", index, " has ", values.size(),
          " ", what, ", and the ", rows, " before it in its micro-batch have ", to.size(),
          "; give all samples the same number");
    detail::append(to, values);
  }

  std::int64_t size_;
  F of_;
};

}  // namespace dhp
