// Compares two files of --trace-values: finds the first layer, micro-batch and tensor that differ.
#pragma once

#include <dhp/core/error.hpp>

#include "../report/progress.hpp"
#include "../report/traced_value.hpp"
#include "metrics.hpp"

#include <array>
#include <map>
#include <string>
#include <vector>

namespace examples {

class ValuesFile {
 public:
  explicit ValuesFile(const std::string& path) {
    for_json_lines(path, "--trace-values", [&](const nlohmann::ordered_json& json) {
      auto value = TracedValue::of_json(json);
      const auto key = value.order();
      values_.emplace(key, std::move(value));
    });
  }
  /// Returns whether a file begins like one of --trace-values.
  [[nodiscard]] static bool is_one(const std::string& path) {
    return first_line_has(path, "fingerprint");
  }

  using Values = std::map<TracedValue::Order, TracedValue>;
  [[nodiscard]] const Values& values() const { return values_; }
  /// Finds the value with the same key here, or that of tensor rank 0 if this run has no such rank.
  [[nodiscard]] const TracedValue* find(TracedValue like) const {
    for (const int rank : {like.tensor_rank, 0}) {
      like.tensor_rank = rank;
      if (const auto found = values_.find(like.order()); found != values_.end())
        return &found->second;
    }
    return nullptr;
  }
  [[nodiscard]] std::string steps() const {
    const auto first = values_.begin()->second.step, last = values_.rbegin()->second.step;
    return dhp::concat(values_.size(), " values of ", first == last ? "step " : "steps ", first,
                       first == last ? "" : dhp::concat(" to ", last));
  }

 private:
  Values values_;
};

/// Prints a comparison of two files; returns whether their common values are the same.
[[nodiscard]] inline bool compare_values(const std::string& path_a, const std::string& path_b,
                                         std::size_t last) {
  const ValuesFile a(path_a), b(path_b);
  print(dhp::concat("A: ", path_a, ", ", a.steps()));
  print(dhp::concat("B: ", path_b, ", ", b.steps()));
  std::size_t compared = 0, parts = 0;
  std::vector<std::pair<const TracedValue*, const TracedValue*>> differing;
  const TracedValue* before = nullptr;  // the last equal value
  for (const auto& [key, value] : a.values()) {
    const auto* const other = b.find(value);
    if (other == nullptr) continue;
    if (other->shape != value.shape) {
      ++parts;
      continue;
    }
    ++compared;
    if (other->fingerprint != value.fingerprint) differing.emplace_back(&value, other);
    else if (differing.empty()) before = &value;
  }
  dhp::check(compared > 0, path_a, " and ", path_b, " have no value in common");
  if (parts > 0)
    print(dhp::concat(parts, parts == 1 ? " value is" : " values are",
                      " not compared: the two tensor axes hold different parts of them"));
  if (differing.empty()) {
    print(dhp::concat("all ", compared, " values that both have are the same, to the last bit"));
    return true;
  }
  constexpr std::array widths{-6, -13, 44, 16, -14, -14};
  print_row(widths, {"step", "micro-batch", "layer", "value", "RMS", "of the other"});
  for (std::size_t at = 0; at < std::min(last, differing.size()); ++at) {
    const auto& [mine, other] = differing[at];
    print_row(widths,
              {dhp::concat(mine->step), dhp::concat(mine->micro_batch), mine->name, mine->value(),
               short_number(mine->root_mean_square), short_number(other->root_mean_square)});
  }
  const auto& first = *differing.front().first;
  print(dhp::concat(
      differing.size(), " of ", compared, " values differ, first in step ", first.step,
      ", micro-batch ", first.micro_batch, ": the ", first.value(), " of layer ", first.layer, ", ",
      first.name, "; ",
      before == nullptr
          ? std::string("nothing before it is the same: compare data, seeds and loaded weights")
          : dhp::concat("the last that is the same is the ", before->value(), " of layer ",
                        before->layer, ", ", before->name, ", micro-batch ", before->micro_batch)));
  return false;
}

}  // namespace examples
