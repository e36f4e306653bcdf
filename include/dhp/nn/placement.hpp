// Placements: how a model is distributed over H, the tensor axis (Shoeybi et al. 2019, "Megatron-LM", section 3). A
// table beside the model maps the name of each parameter to its placement, and the layers follow this table.
#pragma once

#include <dhp/core/error.hpp>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dhp {

/// A tensor rank's part of a parameter. *Column-parallel* layers split their outputs, *row-parallel* layers split their
/// inputs; between a column-parallel layer and its row-parallel partner, ranks exchange nothing.
enum class Placement {
  replicated,  ///< each rank has the whole parameter
  columns,     ///< some outputs or channels of y; the gradient of x is summed
  rows,        ///< some inputs or channels of x; y is summed
  heads,       ///< like columns, but in whole attention heads
  words,       ///< some entries of a vocabulary
  shares,  ///< the whole parameter, used for a share of rows; gradients are summed (row_shares.hpp)
};
[[nodiscard]] inline std::string to_text(Placement placement) {
  constexpr const char* names[] = {"replicated", "columns", "rows", "heads", "words", "shares"};
  static_assert(std::size(names) == detail::as_size(Placement::shares) + 1);
  return names[static_cast<int>(placement)];
}

namespace detail {
/// pattern: matches parameter names; * stands for any characters, {a,b} for a or b.
struct PlacementRow {
  std::string pattern;
  Placement placement;
};
}  // namespace detail
/// The first row whose pattern matches a parameter's name decides the placement.
using Placements = std::vector<detail::PlacementRow>;

/// The dimension of a parameter that each placement splits; -1: the layer does not support the placement.
struct PlacementDims {
  int columns = -1, rows = -1, heads = -1, words = -1;
  bool shares = false;  ///< the layer can work on a share of the rows

  [[nodiscard]] constexpr int dim_of(Placement placement) const {
    const int dims[] = {-1, columns, rows, heads, words, -1};  // in the order of Placement
    static_assert(std::size(dims) == detail::as_size(Placement::shares) + 1);
    return dims[static_cast<int>(placement)];
  }
};

namespace detail {

[[nodiscard]] inline bool matches(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) return name.empty();
  const auto rest = pattern.substr(1);
  if (pattern[0] == '*')
    return matches(rest, name) || (!name.empty() && matches(pattern, name.substr(1)));
  const auto end = pattern[0] == '{' ? pattern.find('}') : pattern.npos;
  if (end == pattern.npos)
    return !name.empty() && name[0] == pattern[0] && matches(rest, name.substr(1));
  for (std::size_t from = 1, to = 0; from <= end; from = to + 1) {
    to = std::min(pattern.find(',', from), end);
    if (matches(concat(pattern.substr(from, to - from), pattern.substr(end + 1)), name))
      return true;
  }
  return false;
}

/// Lists the placements that a layer supports: "columns, words or replicated".
[[nodiscard]] inline std::string followed(const PlacementDims& dims) {
  std::string text;
  for (const auto each : {Placement::columns, Placement::rows, Placement::heads, Placement::words})
    if (dims.dim_of(each) >= 0) text += (text.empty() ? "" : ", ") + to_text(each);
  return text + (text.empty() ? "only " : " or ") + to_text(Placement::replicated);
}

/// A model's placements, and which rows have been used. Without rows, all parameters are replicated.
class PlacementTable {
 public:
  PlacementTable() = default;
  explicit PlacementTable(Placements rows) : rows_(std::move(rows)), decided_(rows_.size()) {}

  /// ranks: size of the tensor axis, for messages.
  [[nodiscard]] Placement find(const std::string& name, int ranks) {
    if (rows_.empty()) return Placement::replicated;
    for (std::size_t at = 0; at < rows_.size(); ++at)
      if (matches(rows_[at].pattern, name)) {
        ++decided_[at];
        return rows_[at].placement;
      }
    fail("no row of the model's placements matches ", name, ", which a tensor axis of ", ranks,
         " needs to know; end with the row {\"*\", Placement::replicated}");
  }
  [[nodiscard]] bool has(Placement placement) const {
    return std::any_of(rows_.begin(), rows_.end(),
                       [&](const auto& row) { return row.placement == placement; });
  }
  /// Throws Error for unused rows, except "*"; call it after the last call of find().
  void check_used(int ranks) const {
    for (std::size_t at = 0; at < rows_.size(); ++at)
      check(decided_[at] > 0 || rows_[at].pattern == "*", "the row {\"", rows_[at].pattern, "\", ",
            rows_[at].placement, "} of the model's placements decides nothing on a tensor axis of ",
            ranks, ": no parameter has such a name, or rows before it match first; correct its ",
            "pattern, move it or leave it out");
  }

 private:
  Placements rows_;
  std::vector<int> decided_;  // how many placements each row has decided
};

}  // namespace detail

}  // namespace dhp
