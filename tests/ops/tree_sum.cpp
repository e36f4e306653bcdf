// Sums along a fixed tree: the additions are the same whichever rank holds which leaves.
#include <dhp/cpu.hpp>
#include <dhp/ops/tree_sum.hpp>
#include <tests/support/tensors.hpp>

namespace {

using dhp::detail::TreeAdd;
using dhp::detail::TreeSum;

/// Returns part 0 after the additions, as a text that shows their order.
std::string order_of(const std::vector<TreeAdd>& adds, std::vector<std::string> parts) {
  for (const auto& add : adds) {
    auto& onto = parts[static_cast<std::size_t>(add.onto)];
    onto = concat("(", onto, "+", parts[static_cast<std::size_t>(add.from)], ")");
  }
  return parts[0];
}

std::vector<std::string> names(Range leaves) {
  std::vector<std::string> list;
  for (auto at = leaves.first; at < leaves.last; ++at) list.push_back(std::to_string(at));
  return list;
}

}  // namespace

TEST_CASE("tree_sum: the tree halves its leaves, the first half the longer one") {
  CHECK(order_of(TreeSum(4, {0, 4}).adds(), names({0, 4})) == "((0+1)+(2+3))");
  CHECK(order_of(TreeSum(3, {0, 3}).adds(), names({0, 3})) == "((0+1)+2)");
  CHECK(TreeSum(1, {0, 1}).adds().empty());
  CHECK_THROWS_WITH(TreeSum(65, {0, 65}), doctest::Contains("1 to 64 leaves, got 65"));
}

TEST_CASE("tree_sum: ranks add their leaves, then the rest, in the order of a single rank") {
  for (int leaves = 1; leaves <= 24; ++leaves)
    for (int ranks = 1; ranks <= leaves; ++ranks) {
      if (leaves % ranks != 0) continue;
      CAPTURE(leaves);
      CAPTURE(ranks);
      std::vector<Range> nodes;
      std::vector<std::string> sums;
      for (int rank = 0; rank < ranks; ++rank) {
        const auto mine = part_of(leaves, ranks, rank);
        const TreeSum own(leaves, mine);
        auto parts = names(mine);
        for (const auto& add : own.adds()) {
          auto& onto = parts[static_cast<std::size_t>(add.onto)];
          onto = concat("(", onto, "+", parts[static_cast<std::size_t>(add.from)], ")");
        }
        for (const auto& root : own.roots()) {
          nodes.push_back(root.leaves);
          sums.push_back(parts[static_cast<std::size_t>(root.part)]);
        }
      }
      const TreeSum rest(leaves, nodes);
      REQUIRE(rest.roots().size() == 1);
      CHECK(order_of(rest.adds(), sums) ==
            order_of(TreeSum(leaves, {0, leaves}).adds(), names({0, leaves})));
    }
}

TEST_CASE("tree_sum: rows are added in place, or to y in y's type") {
  for (const int threads : {1, 3}) {
    Cpu dev({.threads = threads});
    constexpr std::int64_t columns = 9001;
    const auto of = [&] { return random_tensor<float>(dev, {3, columns}, 1); };
    const auto x = of().to_host<float>(dev);
    const auto at = [&](std::int64_t row, std::int64_t column) {
      return x[static_cast<std::size_t>(row * columns + column)];
    };
    const auto adds = TreeSum(3, {0, 3}).adds();
    auto parts = of();
    dhp::detail::tree_sum(dev, parts.mut(), adds);
    const auto row = parts.to_host<float>(dev);
    for (std::int64_t c = 0; c < columns; ++c)
      REQUIRE(row[static_cast<std::size_t>(c)] == (at(0, c) + at(1, c)) + at(2, c));

    auto y = random_tensor<float>(dev, {columns - 3}, 2);
    const auto old = y.to_host<float>(dev);
    parts = of();
    dhp::detail::tree_sum(dev, parts.mut(), adds, y.mut(), 1);
    const auto sums = y.to_host<float>(dev);
    for (std::int64_t c = 0; c < columns - 3; ++c) {
      const auto i = static_cast<std::size_t>(c);
      REQUIRE(sums[i] == old[i] + ((at(0, c) + at(1, c)) + at(2, c)));
    }
    Tensor<Cpu> narrow(dev, DType::bf16, {columns});
    parts = of();
    dhp::detail::tree_sum(dev, parts.mut(), adds, narrow.mut());
    CHECK(static_cast<float>(narrow.to_host<bf16>(dev)[7]) ==
          static_cast<float>(static_cast<bf16>((at(0, 7) + at(1, 7)) + at(2, 7))));
  }
}
