// Tree sums: sums over the leaves of one fixed binary tree. The additions, and so the bits, do not depend on which rank
// adds which leaves. A node covers a range of leaves; its children cover the two halves of the range.
#pragma once

#include <dhp/core/append.hpp>
#include <dhp/tensor/view.hpp>

#include <cstdint>
#include <vector>

namespace dhp::detail {

/// One addition: parts[onto] += parts[from].
struct TreeAdd {
  std::int32_t onto = 0, from = 0;
  friend bool operator==(const TreeAdd&, const TreeAdd&) = default;
};
/// The maximum number of leaves. It is small because kernels take the additions as an argument.
inline constexpr int max_tree_leaves = 64;

/// Plans additions of given parts, each the sum of one node of the tree, until no two siblings are left.
class TreeSum {
 public:
  /// parts: the range of leaves of each node, in ascending order, without overlap.
  TreeSum(int leaves, const std::vector<Range>& parts) : parts_(parts) {
    check(leaves >= 1 && leaves <= max_tree_leaves, "a tree sum has 1 to ", max_tree_leaves,
          " leaves, got ", leaves);
    roots_ = visit({0, leaves});
  }

  /// Plans a sum with one part per leaf of [first, last).
  TreeSum(int leaves, Range parts) : TreeSum(leaves, single(parts)) {}

  /// Returns the additions, in order.
  [[nodiscard]] const std::vector<TreeAdd>& adds() const { return adds_; }
  /// A node that is left after the additions: either its sibling is missing, or it is the root of the tree.
  struct Root {
    Range leaves;
    std::int32_t part = 0;  ///< index of the part with the node's sum
  };
  [[nodiscard]] const std::vector<Root>& roots() const { return roots_; }

 private:
  [[nodiscard]] static std::vector<Range> single(Range leaves) {
    std::vector<Range> list;
    for (auto at = leaves.first; at < leaves.last; ++at) list.push_back({at, at + 1});
    return list;
  }
  [[nodiscard]] std::vector<Root> visit(Range node) {
    for (std::size_t at = 0; at < parts_.size(); ++at)
      if (parts_[at] == node) return {{node, static_cast<std::int32_t>(at)}};
    if (node.size() <= 1) return {};
    const auto middle = node.first + (node.size() + 1) / 2;
    auto left = visit({node.first, middle});
    const auto right = visit({middle, node.last});
    const auto whole = [](const std::vector<Root>& roots, Range of) {
      return roots.size() == 1 && roots[0].leaves == of;
    };
    if (whole(left, {node.first, middle}) && whole(right, {middle, node.last})) {
      adds_.push_back({left[0].part, right[0].part});
      return {{node, left[0].part}};
    }
    append(left, right);
    return left;
  }

  std::vector<Range> parts_;
  std::vector<TreeAdd> adds_;
  std::vector<Root> roots_;
};

/// Runs the additions in order on the rows of parts [P, n], f32 or f64, in place. If y [m], m <= n, is not empty, y =
/// beta y + row 0, rounded once.
template <Device Dev>
void tree_sum(Dev& dev, OutView<Dev> parts, const std::vector<TreeAdd>& adds, OutView<Dev> y = {},
              double beta = 0) {
  check(parts.shape().rank() == 2 && parts.dtype() == accumulation_type(parts.dtype()) &&
            y.count() <= parts.columns() && adds.size() < max_tree_leaves,
        "tree_sum: parts ", parts.shape(), " of ", parts.dtype(), " cannot be added up to ",
        y.shape());
  for (const auto& add : adds)
    check(add.onto >= 0 && add.from >= 0 && add.onto < parts.shape()[0] &&
              add.from < parts.shape()[0],
          "tree_sum: no parts ", add.onto, " and ", add.from, " in ", parts.shape());
  if (parts.count() > 0) tree_sum_on(dev, parts, adds, y, beta);
}

}  // namespace dhp::detail
