// Options of low-rank adapters (Hu et al. 2021, "LoRA").
#pragma once

#include <dhp/core/config.hpp>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

namespace dhp {

struct LowRankOptions {
  /// The linear layers to adapt, by the end of their names: "query" matches "encoder.layer.0.attention.self.query".
  std::vector<std::string> layers{};
  std::int64_t rank = 8;
  double alpha = 16;   ///< the adapter's output is scaled by alpha / rank
  double dropout = 0;  ///< dropout probability of the adapter's input

  [[nodiscard]] double scale() const { return alpha / static_cast<double>(rank); }
  /// Returns the entries of `layers` that match this layer; none if it gets no adapter.
  [[nodiscard]] std::vector<std::string> matching(const std::string& layer) const {
    std::vector<std::string> found;
    std::copy_if(layers.begin(), layers.end(), std::back_inserter(found),
                 [&](const auto& end) { return layer == end || layer.ends_with("." + end); });
    return found;
  }
};

/// Returns whether the parameter with this name belongs to an adapter.
[[nodiscard]] inline bool is_of_adapter(const std::string& parameter) {
  return parameter.find(".lora_") != parameter.npos;
}

}  // namespace dhp
