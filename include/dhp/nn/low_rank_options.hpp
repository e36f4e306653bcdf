// What is adapted by low-rank matrices, and how (Hu et al. 2021, "LoRA").
#pragma once

#include <dhp/core/config.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace dhp {

struct LowRankOptions {
  /// Linear layers by the end of their names: "query" stands for all of "....self.query". Empty: none.
  std::vector<std::string> layers{};
  std::int64_t rank = 8;
  double alpha = 16;   ///< what the adapter adds is scaled by alpha / rank
  double dropout = 0;  ///< probability, of the adapter's input

  [[nodiscard]] double scale() const { return alpha / static_cast<double>(rank); }
  /// The entry of `layers` that stands for this layer; null: it is not adapted.
  [[nodiscard]] const std::string* adapts(const std::string& layer) const {
    const auto found = std::find_if(layers.begin(), layers.end(), [&](const auto& end) {
      return layer == end || layer.ends_with("." + end);
    });
    return found == layers.end() ? nullptr : &*found;
  }
};

/// Whether a parameter is one of an adapter, by its name.
[[nodiscard]] inline bool is_of_adapter(const std::string& parameter) {
  return parameter.find(".lora_") != parameter.npos;
}

}  // namespace dhp
