// Compares two files of runs in any layouts: of --metrics, to find the first difference, its size and its usual cause;
// or of --trace-values, to find the first layer, micro-batch and tensor that differ.
#pragma once

#include <dhp/core/error.hpp>

#include "../report/progress.hpp"
#include "../report/traced_value.hpp"
#include "table.hpp"

#include <nlohmann/json.hpp>

#include <array>
#include <cstdint>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace examples {

/// Returns whether the first line of a file is an object with this key.
[[nodiscard]] inline bool first_line_has(const std::string& path, const char* key) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  const auto json = nlohmann::json::parse(line, nullptr, false);
  return json.is_object() && json.contains(key);
}

/// Calls body(object) for each line of a file of JSON objects. writer: the option that writes such files. Leaves out
/// half a line at the end: a killed run may have written it.
void for_json_lines(const std::string& path, const std::string& writer, const auto& body) {
  std::ifstream file(path);
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) try {
      body(nlohmann::ordered_json::parse(line));
    } catch (const nlohmann::json::exception&) {
      if (file.eof() && number > 1) return;
      dhp::fail(path, ", line ", number, ", is not a line that ", writer, " writes");
    }
}

class MetricsFile {
 public:
  struct Entry {
    std::int64_t step;
    std::string measure;
    double value;
  };

  explicit MetricsFile(const std::string& path) {
    for_json_lines(path, "--metrics", [&](const nlohmann::ordered_json& json) {
      const auto step = json.at("step").get<std::int64_t>();
      for (const auto& [measure, value] : json.items())
        if (measure != "step" && !is_of_machine(measure))
          add({step, measure, value.is_number() ? value.get<double>() : std::nan("")});
    });
    dhp::check(!entries_.empty(), path, " has no steps");
  }
  /// Returns whether a file begins like a metrics file.
  [[nodiscard]] static bool is_one(const std::string& path) { return first_line_has(path, "step"); }

  /// Returns the entries in the order of the file.
  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }
  [[nodiscard]] const double* find(std::int64_t step, const std::string& measure) const {
    const auto found = values_.find({step, measure});
    return found == values_.end() ? nullptr : &found->second;
  }
  [[nodiscard]] std::string steps() const {
    return dhp::concat("steps ", entries_.front().step, " to ", entries_.back().step);
  }

 private:
  /// Returns whether a measure depends on machine and layout: speed, memory, tokens of one replica, or the summary.
  [[nodiscard]] static bool is_of_machine(const std::string& measure) {
    return measure.ends_with("_per_s") || measure.ends_with("_bytes") || measure == "token_rows" ||
           measure == "exposed_communication" || measure == "summary";
  }
  void add(Entry entry) {
    values_[{entry.step, entry.measure}] = entry.value;
    entries_.push_back(std::move(entry));
  }

  std::vector<Entry> entries_;
  std::map<std::pair<std::int64_t, std::string>, double> values_;
};

/// Prints a comparison of two files; returns whether their common entries are the same.
[[nodiscard]] inline bool compare_metrics(const std::string& path_a, const std::string& path_b) {
  const MetricsFile a(path_a), b(path_b);
  print(dhp::concat("A: ", path_a, ", ", a.steps()));
  print(dhp::concat("B: ", path_b, ", ", b.steps()));
  struct Row {
    int compared = 0, different = 0;
    std::int64_t first = 0, worst_step = 0;
    double worst = 0;
  };
  std::vector<std::string> names;
  std::map<std::string, Row> rows;
  const MetricsFile::Entry* first = nullptr;
  std::int64_t begin = -1;  // first step in both files
  for (const auto& entry : a.entries()) {
    const auto* other = b.find(entry.step, entry.measure);
    if (other == nullptr) continue;
    if (begin < 0) begin = entry.step;
    const auto [found, added] = rows.try_emplace(entry.measure);
    if (added) names.push_back(entry.measure);
    auto& row = found->second;
    ++row.compared;
    if (same(entry.value, *other)) continue;
    if (first == nullptr) first = &entry;
    if (row.different++ == 0) row.first = entry.step;
    const double apart = relative_difference(entry.value, *other);
    if (apart >= row.worst) row.worst = apart, row.worst_step = entry.step;
  }
  dhp::check(begin >= 0, path_a, " and ", path_b, " have no step in common");
  constexpr std::array widths{34, -9, -8, -8, -20, -9};
  print_row(widths, {"measure", "compared", "differ", "first", "largest difference", "in step"});
  for (const auto& name : names) {
    const auto& row = rows[name];
    const bool differs = row.different > 0;
    print_row(widths,
              {name, dhp::concat(row.compared), dhp::concat(row.different),
               differs ? dhp::concat(row.first) : "-", differs ? short_difference(row.worst) : "-",
               differs ? dhp::concat(row.worst_step) : "-"});
  }
  if (first == nullptr) {
    print("all values that both files have are the same, to the last bit");
    return true;
  }
  const double other = *b.find(first->step, first->measure);
  const double apart = relative_difference(first->value, other);
  const std::string cause =
      first->measure == "lr"
          ? "another learning rate: compare --lr, --warmup, --lr-decay and --steps"
      : apart <= max_rounding ? rounding_cause
      : first->step == begin
          ? "from the first step on: another model, seed, data, batch or loaded state"
          : "the steps before are the same: a step that one of them skipped, other samples from "
            "there on, or a fault";
  print(dhp::concat("they differ first in step ", first->step, ", in ", first->measure, ": ",
                    first->value, " and ", other, ", ", short_difference(apart), " of it; ",
                    cause));
  return false;
}

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
    return dhp::concat(dhp::detail::pluralize(values_.size(), "value"), " of ",
                       first == last ? "step " : "steps ", first,
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
  auto all = a.values();
  all.insert(b.values().begin(), b.values().end());  // its tensor axis may have more ranks
  for (const auto& [key, value] : all) {
    const auto *const mine = a.find(value), *const other = b.find(value);
    if (mine == nullptr || other == nullptr) continue;
    if (other->shape != mine->shape) {
      ++parts;
      continue;
    }
    ++compared;
    if (other->fingerprint != mine->fingerprint) differing.emplace_back(mine, other);
    else if (differing.empty()) before = mine;
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
  const int rank = std::max(first.tensor_rank, differing.front().second->tensor_rank);
  print(dhp::concat(
      differing.size(), " of ", compared, " values differ, first in step ", first.step,
      ", tensor rank ", rank, ", micro-batch ", first.micro_batch, ": the ", first.value(),
      " of layer ", first.layer, ", ", first.name, "; ",
      before == nullptr
          ? std::string("nothing before it is the same: compare data, seeds and loaded weights")
          : dhp::concat("the last that is the same is the ", before->value(), " of layer ",
                        before->layer, ", ", before->name, ", micro-batch ", before->micro_batch)));
  return false;
}

}  // namespace examples
