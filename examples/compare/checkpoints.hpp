// Compares two checkpoints, or all saved steps of two runs, in any layouts. Finds the first tensor that differs.
#pragma once

#include <dhp/core/types.hpp>
#include <dhp/train/shard.hpp>

#include "table.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace examples {

/// Weights come before optimizer state; numbers inside names are ordered by value: layer.2 comes before layer.10.
struct InNaturalOrder {
  bool operator()(const std::string& a, const std::string& b) const {
    const bool late = a.starts_with("optimizer/"), other_late = b.starts_with("optimizer/");
    return late != other_late ? other_late : ::strverscmp(a.c_str(), b.c_str()) < 0;
  }
};

/// The difference of one tensor between both checkpoints.
struct TensorDifference {
  std::int64_t elements = 0, different = 0;
  double largest = 0;  ///< largest difference, relative to the largest finite number of both sides
};

class CheckpointComparison {
 public:
  /// a and b are folders of checkpoints.
  CheckpointComparison(const std::string& a, const std::string& b) : a_(a), b_(b) {
    for (const auto* side : {&a_, &b_})
      for (const auto& [name, pieces] : side->index().tensors) names_.insert(name);
    for (const auto& name : names_) {
      const auto *const one = a_.find(name), *const other = b_.find(name);
      if (one == nullptr || other == nullptr ||
          one->front().piece.shape != other->front().piece.shape)
        unlike_.push_back(name);
      else if (const auto found = compare(one->front().piece, other->front().piece);
               found.different > 0)
        different_.emplace_back(name, found);
    }
  }

  [[nodiscard]] bool same() const { return unlike_.empty() && different_.empty(); }
  [[nodiscard]] std::size_t tensors() const { return names_.size(); }

  /// Prints at most `rows` rows of tensors that differ.
  void print_differences(std::size_t rows) const {
    print_about();
    const auto shape = [](const dhp::SavedPieces& side, const std::string& name) {
      const auto* pieces = side.find(name);
      return pieces == nullptr ? std::string("none") : dhp::concat(pieces->front().piece.shape);
    };
    for (const auto& name : unlike_)
      print(dhp::concat("  ", name, ": A has ", shape(a_, name), ", B has ", shape(b_, name)));
    if (different_.empty()) return;
    constexpr std::array widths{58, -12, -12, -20};
    print_row(widths, {"tensor", "elements", "differ", "largest difference"});
    for (std::size_t at = 0; at < std::min(rows, different_.size()); ++at) {
      const auto& [name, found] = different_[at];
      print_row(widths, {name, dhp::concat(found.elements), dhp::concat(found.different),
                         short_difference(found.largest)});
    }
    if (different_.size() > rows)
      print(dhp::concat("  and ", different_.size() - rows, " more; --last shows more"));
  }
  /// Returns one sentence about the first difference.
  [[nodiscard]] std::string sentence() const {
    if (same()) return dhp::concat("all ", tensors(), " tensors are the same, to the last bit");
    if (different_.empty())
      return dhp::concat(unlike_.size(), " of ", tensors(),
                         " tensors are in one checkpoint only or differ in shape: the models or "
                         "optimizers differ");
    const auto& [name, first] = different_.front();
    return dhp::concat(different_.size(), " of ", tensors(), " tensors differ, the first is ", name,
                       ": ", first.different, " of ", first.elements, " elements, by at most ",
                       short_difference(first.largest), " of its largest; ", cause());
  }

 private:
  static void add_fields(const nlohmann::ordered_json& of, const std::string& path,
                         std::map<std::string, std::string>& to) {
    for (const auto& [name, value] : of.items())
      if (value.is_object() && name != "measures") add_fields(value, path + name + "/", to);
      else if (!value.is_object()) to[path + name] = value.dump();
  }
  /// Prints the fields in which the checkpoints' descriptions ("about") differ, without measures.
  void print_about() const {
    std::map<std::string, std::string> a, b;
    add_fields(a_.index().about, "", a);
    add_fields(b_.index().about, "", b);
    auto both = a;
    both.insert(b.begin(), b.end());
    const auto value = [](const auto& all, const auto& name) {
      const auto found = all.find(name);
      return found == all.end() ? std::string("nothing") : found->second;
    };
    for (const auto& [name, any] : both)
      if (value(a, name) != value(b, name))
        print(dhp::concat("  ", name, ": A has ", value(a, name), ", B has ", value(b, name)));
  }

  /// Returns the likely cause, judged by the median of all tensors' differences. The largest would mislead: Adam makes
  /// large differences from gradients that are only rounding errors, such as those of key biases in attention.
  [[nodiscard]] std::string cause() const {
    std::vector<double> largest;
    for (const auto& [name, found] : different_) largest.push_back(found.largest);
    const auto middle = largest.begin() + static_cast<std::ptrdiff_t>(largest.size() / 2);
    std::nth_element(largest.begin(), middle, largest.end());
    return *middle <= max_rounding
               ? rounding_cause
               : "more than rounding makes: other options, seed, data or steps, or a fault";
  }

  [[nodiscard]] TensorDifference compare(const dhp::Piece& one, const dhp::Piece& other) {
    constexpr std::int64_t most = 1 << 20;  // elements in memory at one time
    TensorDifference found{.elements = one.shape.count()};
    double largest_value = 0, largest = 0;
    for (std::int64_t at = 0; at < found.elements; at += most) {
      const auto last = std::min(at + most, found.elements);
      const auto left = read(a_, one, {at, last}), right = read(b_, other, {at, last});
      for (std::size_t each = 0; each < left.size(); ++each) {
        for (const double value : {left[each], right[each]})
          if (std::isfinite(value)) largest_value = std::max(largest_value, std::abs(value));
        if (examples::same(left[each], right[each])) continue;
        ++found.different;
        const double apart = std::abs(left[each] - right[each]);
        largest =
            std::max(largest, std::isnan(apart) ? std::numeric_limits<double>::infinity() : apart);
      }
    }
    if (found.different > 0) found.largest = largest / largest_value;
    return found;
  }
  [[nodiscard]] static std::vector<double> read(dhp::SavedPieces& from, const dhp::Piece& like,
                                                dhp::Range range) {
    const dhp::Piece wanted{
        .name = like.name, .shape = like.shape, .dtype = like.dtype, .range = range};
    std::vector<std::byte> bytes(wanted.bytes());
    from.read(wanted, bytes.data());
    std::vector<double> values(static_cast<std::size_t>(range.size()));
    dhp::visit_floating(like.dtype, [&]<class T>(dhp::TypeTag<T>) {
      const auto* const typed = reinterpret_cast<const T*>(bytes.data());
      for (std::size_t at = 0; at < values.size(); ++at)
        values[at] = static_cast<double>(typed[at]);
    });
    return values;
  }

  dhp::SavedPieces a_, b_;
  std::set<std::string, InNaturalOrder> names_;
  std::vector<std::string> unlike_;  // tensors of one side only, or of different shapes
  std::vector<std::pair<std::string, TensorDifference>> different_;
};

/// Returns folders of checkpoints by name; for a single checkpoint, itself under the name of its step.
[[nodiscard]] inline std::map<std::string, std::string> checkpoints_in(const std::string& path) {
  if (dhp::detail::is_there(path + "/index.json")) {
    const auto steps = dhp::SavedPieces(path).index().about.value("steps", std::int64_t{0});
    return {{dhp::CheckpointFolder::name_of(steps), path}};
  }
  std::map<std::string, std::string> found;
  const dhp::CheckpointFolder folder(path);
  for (const auto& name : folder.names()) found[name] = folder.path(name);
  dhp::check(!found.empty(), path, " is neither a checkpoint nor a folder of checkpoints");
  return found;
}

/// Prints the comparison up to the first step that differs; returns whether all are the same. If each side has only one
/// checkpoint, these two are compared even if their steps differ.
[[nodiscard]] inline bool compare_checkpoints(const std::string& path_a, const std::string& path_b,
                                              std::size_t rows) {
  const auto a = checkpoints_in(path_a), b = checkpoints_in(path_b);
  std::vector<std::pair<std::string, std::string>> pairs;
  if (a.size() == 1 && b.size() == 1) pairs.emplace_back(a.begin()->second, b.begin()->second);
  else
    for (const auto& [name, folder] : a)
      if (const auto other = b.find(name); other != b.end())
        pairs.emplace_back(folder, other->second);
  dhp::check(!pairs.empty(), "no step was saved in both ", path_a, " and ", path_b);
  for (const auto& [one, other] : pairs) {
    print(dhp::concat("A: ", one));
    print(dhp::concat("B: ", other));
    const CheckpointComparison comparison(one, other);
    comparison.print_differences(rows);
    print(comparison.sentence());
    if (!comparison.same()) return false;
  }
  return true;
}

}  // namespace examples
