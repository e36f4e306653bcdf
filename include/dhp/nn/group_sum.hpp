// GroupSum: the sums of layers on H, the tensor axis (Shoeybi et al. 2019, "Megatron-LM", section 3). A column-parallel
// layer sums the gradient of x in its backward pass; a row-parallel layer sums y in its forward pass.
//
// Split tensors are held in pieces. Without tensor groups each rank has one piece, and the engine sums the ranks'
// pieces in its own order. With G groups every layout has G pieces, and each rank of H holds G / H of them. The pieces
// are added along one tree with G leaves, so the bits do not depend on H.
#pragma once

#include <dhp/comm/comm.hpp>
#include <dhp/core/append.hpp>
#include <dhp/core/function_ref.hpp>
#include <dhp/nn/row_shares.hpp>
#include <dhp/ops/elementwise.hpp>
#include <dhp/ops/tree_sum.hpp>
#include <dhp/tensor/tensor.hpp>

#include <algorithm>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace dhp {

namespace detail {
/// Returns the shape of a tensor of several pieces, [pieces, ...]; a single piece keeps its own shape.
[[nodiscard]] inline Shape shape_of_pieces(int pieces, const Shape& piece) {
  if (pieces == 1) return piece;
  Shape all{pieces};
  for (const auto extent : piece) all.push_back(extent);
  return all;
}
[[nodiscard]] inline Shape shape_of_piece(int pieces, const Shape& all) {
  if (pieces == 1) return all;
  check(all.rank() > 1 && all[0] == pieces, "a layer on the tensor axis needs ", pieces,
        " pieces, got ", all);
  Shape piece;
  for (int dim = 1; dim < all.rank(); ++dim) piece.push_back(all[dim]);
  return piece;
}
template <class AnyView>
[[nodiscard]] AnyView piece(AnyView all, int pieces, int at) {
  if (pieces == 1) return all;
  return all.slice(at, at + 1).as(shape_of_piece(pieces, all.shape()));
}
/// Returns x itself, or a copy if x is shared, so that the caller can add to it; if x is empty, uninitialized memory of
/// this type and shape.
template <class Dev>
[[nodiscard]] Tensor<Dev> writable(Dev& dev, Tensor<Dev> x, DType dtype, const Shape& shape) {
  if (!x) return {dev, dtype, shape};
  return x.unique() ? std::move(x) : clone(dev, x.view());
}
}  // namespace detail

/// Sums over the pieces that a group of ranks holds. The default is one rank with one piece.
template <class Dev>
class GroupSum {
 public:
  /// Writes beta * `out` + the summand of one of this rank's pieces.
  using Write = std::type_identity_t<FunctionRef<void(int piece, View<Dev> out, double beta)>>;
  /// Writes beta * `out` + the entries `rows` of dim 0 of such a summand.
  using WriteRows =
      std::type_identity_t<FunctionRef<void(int piece, Range rows, View<Dev> out, double beta)>>;

  GroupSum() = default;
  /// groups: number of pieces over all ranks; 0 means one piece for each rank, added in any order. shares: each rank's
  /// rows of the sums, and of the tensors that sums are added onto.
  explicit GroupSum(Comm<Dev> group, int groups = 0, RowShares<Dev> shares = {})
      : group_(std::move(group)), groups_(groups), shares_(std::move(shares)) {
    if (groups > 0) plan_ = plan_of(group_.rank(), group_.size(), groups);
  }

  [[nodiscard]] int pieces() const { return groups_ == 0 ? 1 : groups_ / group_.size(); }
  [[nodiscard]] bool is_grouped() const { return groups_ > 0; }
  /// Returns whether a piece of this rank is the first of all pieces. Only this piece's summand includes a bias.
  [[nodiscard]] bool is_first(int piece) const { return group_.rank() == 0 && piece == 0; }
  [[nodiscard]] RowShares<Dev>& shares() { return shares_; }
  [[nodiscard]] const RowShares<Dev>& shares() const { return shares_; }

  /// A sum that may still be in flight. Work that does not need the sum can run before wait().
  class Started {
   public:
    [[nodiscard]] Tensor<Dev> wait(Dev& dev) && {
      done_.wait();
      if (onto_) add(dev, y_.view(), onto_.view(), y_.mut());
      return std::move(y_);
    }

   private:
    friend class GroupSum;
    Tensor<Dev> y_, summand_, onto_;  // summand_ stays until the engine has read it
    Event<Dev> done_{};
  };

  /// Returns onto + the sum over all pieces in `type`. Each rank gets all of `shape`, or its rows if ranks share rows.
  /// onto may be empty, and may be overwritten. With groups, `out` is in the accumulation type.
  [[nodiscard]] Tensor<Dev> operator()(Dev& dev, DType type, const Shape& shape, Tensor<Dev> onto,
                                       Write write) {
    const auto all = std::max<std::int64_t>(shape[0], 1);
    return sum(dev, type, shape, std::move(onto), all,
               [&](int piece, Range, View<Dev> out, double beta) { write(piece, out, beta); })
        .wait(dev);
  }
  /// Sums like operator() for independent rows or images: a CPU computes a few rows at a time, so that the summands of
  /// all pieces stay in its cache.
  [[nodiscard]] Tensor<Dev> by_rows(Dev& dev, DType type, const Shape& shape, Tensor<Dev> onto,
                                    WriteRows write) {
    return start_by_rows(dev, type, shape, std::move(onto), write).wait(dev);
  }
  [[nodiscard]] Started start_by_rows(Dev& dev, DType type, const Shape& shape, Tensor<Dev> onto,
                                      WriteRows write) {
    auto rows = std::max<std::int64_t>(shape[0], 1);
    if constexpr (Dev::host_accessible)
      if (is_grouped() && shape.count() > 0) {
        constexpr std::int64_t cached = std::int64_t{1} << 16;  // elements
        const std::int64_t least = shape.rank() > 2 ? 1 : 64;   // fewest rows that are worth a call
        const auto row = shape.count() / rows;
        rows = std::min(rows, std::max(cached / (row * groups_), least));
      }
    return sum(dev, type, shape, std::move(onto), rows, write);
  }
  /// Sums in blocks of rows: this rank computes all its pieces of one block before those of the next block.
  [[nodiscard]] Tensor<Dev> by_blocks(Dev& dev, DType type, const Shape& shape, std::int64_t rows,
                                      WriteRows write) {
    return sum(dev, type, shape, {}, rows, write).wait(dev);
  }
  /// Replaces each rank's summand by the sum over all ranks; the engine adds in any order.
  void operator()(Dev& dev, Tensor<Dev>& summand) {
    if (group_.size() > 1 && summand) group_.all_reduce(dev, summand.mut()).wait();
  }

 private:
  /// The additions among a rank's own pieces (own_adds), and among the sums that it receives (adds).
  struct Plan {
    std::vector<detail::TreeAdd> own_adds, adds;
    std::vector<std::int64_t> sent;  // own pieces that hold sums after own_adds
    std::int64_t max_sent = 0;       // largest number of sums that a rank sends to another
  };
  [[nodiscard, gnu::cold]] static std::shared_ptr<const Plan> plan_of(int rank, int ranks,
                                                                      int groups) {
    auto plan = std::make_shared<Plan>();
    std::vector<std::vector<Range>> nodes;  // tree nodes of each rank
    for (int of = 0; of < ranks; ++of) {
      const detail::TreeSum own(groups, part_of(groups, ranks, of));
      nodes.emplace_back();
      for (const auto& root : own.roots()) {
        nodes.back().push_back(root.leaves);
        if (of == rank) plan->sent.push_back(root.part);
      }
      if (of == rank) plan->own_adds = own.adds();
      plan->max_sent = std::max(plan->max_sent, static_cast<std::int64_t>(nodes.back().size()));
    }
    std::vector<Range> received;
    for (auto& of : nodes) {
      of.resize(detail::as_size(plan->max_sent));  // pads with empty nodes
      detail::append(received, of);
    }
    plan->adds = detail::TreeSum(groups, received).adds();
    return plan;
  }

  [[nodiscard]] Started sum(Dev& dev, DType type, const Shape& shape, Tensor<Dev> onto,
                            std::int64_t rows, WriteRows write) {
    Started result;
    if (!is_grouped() && shares_.is_split()) {
      result.summand_ = shares_.summand(dev, type, shape);
      write(0, {0, shape[0]}, result.summand_.mut().slice(0, shape[0]), 0);
      result.y_ = shares_.scatter(dev, result.summand_, shape[0], result.done_);
      result.onto_ = std::move(onto);
      return result;
    }
    if (!is_grouped() && group_.rank() != 0) onto = {};
    const bool exchanges = is_grouped() && group_.size() > 1;
    const double beta = onto ? 1 : 0;
    if (!exchanges) onto = detail::writable(dev, std::move(onto), type, shape);
    if (!is_grouped()) {
      write(0, {0, shape[0]}, onto.mut(), beta);
      if (group_.size() > 1) result.done_ = group_.all_reduce(dev, onto.mut());
      result.y_ = std::move(onto);
      return result;
    }
    const auto ranks = std::int64_t{group_.size()};
    const auto row = shape[0] == 0 ? 0 : shape.count() / shape[0];
    const auto padded = shares_.is_split() ? shares_.max_local(shape[0]) * row * ranks
                                           : (shape.count() + ranks - 1) / ranks * ranks;
    Tensor<Dev> own;  // this rank's sums
    const auto roots = static_cast<std::int64_t>(plan_->sent.size());
    if (exchanges) {
      own = Tensor<Dev>(dev, accumulation_type(type), {roots, padded});
      if (padded > shape.count()) dev.fill_zero(own.mut().bytes(), own.size_bytes());
    }
    for (std::int64_t first = 0; first < shape[0]; first += rows) {
      const Range block{first, std::min(first + rows, shape[0])};
      const auto of_block = [&](View<Dev> all) {
        return all.as({all.count()}).slice(block.first * row, block.last * row);
      };
      Tensor<Dev> sums(dev, accumulation_type(type), {pieces(), block.size() * row});
      for (int at = 0; at < pieces(); ++at)
        write(at, block, row_of(sums, at).as(shape.with(0, block.size())), 0);
      View<Dev> to;  // destination of the sum in row 0
      if (!exchanges) to = of_block(onto.mut());
      else if (roots == 1) to = of_block(own.mut());
      detail::tree_sum(dev, sums.mut(), plan_->own_adds, to, exchanges ? 0 : beta);
      for (std::int64_t at = 0; exchanges && roots > 1 && at < roots; ++at) {
        const auto from = row_of(sums, plan_->sent[detail::as_size(at)]);
        detail::copy(dev, from, of_block(row_of(own, at)));
      }
    }
    result.y_ =
        exchanges ? exchanged(dev, std::move(own), type, shape, std::move(onto)) : std::move(onto);
    return result;
  }
  /// Rank r adds part r of all ranks' sums; then all ranks gather the results, unless they share rows.
  [[nodiscard]] Tensor<Dev> exchanged(Dev& dev, Tensor<Dev> sums, DType type, const Shape& shape,
                                      Tensor<Dev> onto) {
    const std::int64_t ranks = group_.size(), count = shape.count(), rows = plan_->max_sent;
    const auto part = sums.columns() / ranks;
    auto sent = rows == 1 ? std::move(sums) : arranged(dev, sums, part);
    Tensor<Dev> received(dev, sent.dtype(), {ranks * rows, part});
    group_.all_to_all(dev, sent.view(), received.mut()).wait();
    const double beta = onto ? 1 : 0;
    if (shares_.is_split()) {
      auto y = detail::writable(dev, std::move(onto), type, shares_.local(shape));
      detail::tree_sum(dev, received.mut(), plan_->adds, y.mut().as({y.count()}), beta);
      return y;
    }
    const Range mine{group_.rank() * part, (group_.rank() + 1) * part};
    Tensor<Dev> all;
    if (onto.unique() && ranks * part == count) {
      all = std::move(onto).reshape({count});
    } else {
      all = Tensor<Dev>(dev, type, {ranks * part});
      if (onto) {
        const auto first = std::min(mine.first, count), last = std::min(mine.last, count);
        detail::copy(dev, onto.view().as({count}).slice(first, last), all.mut().slice(first, last));
        const auto tail = all.mut().slice(last, std::max(mine.last, last));
        dev.fill_zero(tail.bytes(), tail.size_bytes());
      }
    }
    const auto summed = all.mut().slice(mine);
    detail::tree_sum(dev, received.mut(), plan_->adds, summed, beta);
    group_.all_gather(dev, summed, all.mut()).wait();
    if (all.count() == count) return std::move(all).reshape(shape);
    Tensor<Dev> y(dev, type, shape);
    dev.copy(y.mut().bytes(), all.view().bytes(), y.size_bytes());
    return y;
  }
  /// Arranges the sums for sending: the parts for rank 0, then those for rank 1, and so on.
  [[nodiscard]] Tensor<Dev> arranged(Dev& dev, Tensor<Dev>& sums, std::int64_t part) const {
    const std::int64_t ranks = group_.size(), rows = plan_->max_sent;
    auto sent = Tensor<Dev>::zeros(dev, sums.dtype(), {ranks * rows, part});
    for (std::int64_t to = 0; to < ranks; ++to)
      for (std::size_t at = 0; at < plan_->sent.size(); ++at) {
        const auto from =
            row_of(sums, static_cast<std::int64_t>(at)).slice(to * part, (to + 1) * part);
        const auto row = to * rows + static_cast<std::int64_t>(at);
        detail::copy(dev, from, sent.mut().slice(row, row + 1));
      }
    return sent;
  }
  [[nodiscard]] static View<Dev> row_of(Tensor<Dev>& sums, std::int64_t at) {
    return sums.mut().slice(at, at + 1).as({sums.columns()});
  }

  Comm<Dev> group_;
  int groups_ = 0;
  RowShares<Dev> shares_;
  std::shared_ptr<const Plan> plan_;  // null without groups
};

}  // namespace dhp
