// RowShares: sequence parallelism on H, the tensor axis (Korthikanti et al. 2022, "Reducing activation recomputation in
// large transformer models", section 4.2.2). Between a row-parallel and a column-parallel layer each rank holds a share
// of an activation's rows. A reduce-scatter replaces the all-reduce over all rows; a layer that needs all rows gathers
// them.
#pragma once

#include <dhp/comm/comm.hpp>
#include <dhp/tensor/tape.hpp>

#include <algorithm>
#include <utility>

namespace dhp {

/// Each rank's share of an activation's rows, one row for each entry of the side input "row_numbers". Shares are in
/// rank order and equally long, but the last ones may be shorter or empty. By default every rank has all rows.
template <class Dev>
class RowShares {
 public:
  RowShares() = default;
  /// groups: number of pieces over all ranks, a multiple of the ranks; a share consists of whole pieces. 0 means one
  /// piece for each rank.
  explicit RowShares(Comm<Dev> group, int groups = 0)
      : group_(std::move(group)), pieces_(groups > 0 ? groups : group_.size()) {}

  /// Returns whether each rank has only a share of the rows.
  [[nodiscard]] bool is_split() const { return group_.size() > 1; }
  /// Returns the number of rows of all ranks together, if this rank has `own` rows.
  [[nodiscard]] std::int64_t all(const MicroBatch<Dev>& batch, std::int64_t own) const {
    return is_split() ? batch.at("row_numbers").count() : own;
  }
  [[nodiscard]] std::int64_t all(const Tape<Dev>& tape, std::int64_t own) const {
    return is_split() ? all(tape.batch(), own) : own;
  }
  /// Returns the length of the longest share of that many rows.
  [[nodiscard]] std::int64_t max_local(std::int64_t rows) const {
    return (rows + pieces_ - 1) / pieces_ * (pieces_ / group_.size());
  }
  /// Returns this rank's share of that many rows.
  [[nodiscard]] Range local(std::int64_t rows) const {
    const auto first = std::min(group_.rank() * max_local(rows), rows);
    return {first, std::min(first + max_local(rows), rows)};
  }
  [[nodiscard]] Shape local(const Shape& all) const { return all.with(0, local(all[0]).size()); }
  /// Calls body for each piece of this rank's rows. Neither pieces nor their sums depend on the number of ranks.
  void for_pieces(const Tape<Dev>& tape, std::int64_t rows, FunctionRef<void(Range)> body) const {
    const auto pieces = std::int64_t{pieces_} * std::max(tape.row_groups(), 1);
    const auto piece = (all(tape, rows) + pieces - 1) / pieces;
    for (std::int64_t first = 0; first < rows; first += piece)
      body({first, std::min(first + piece, rows)});
  }

  /// An all-gather of all rows, in flight.
  class Gathering {
   public:
    [[nodiscard]] Tensor<Dev> wait() && {
      done_.wait();
      return std::move(all_).shortened(rows_);
    }

   private:
    friend class RowShares;
    Tensor<Dev> share_, all_;
    std::int64_t rows_ = 0;
    Event<Dev> done_{};
  };
  [[nodiscard]] Gathering start_gather(Dev& dev, Tensor<Dev> x, const Tape<Dev>& tape) {
    Gathering result;
    result.rows_ = all(tape, x.shape()[0]);
    if (!is_split()) {
      result.all_ = std::move(x);
      return result;
    }
    const auto most = this->max_local(result.rows_), rank = std::int64_t{group_.rank()};
    check(x.shape()[0] == local(result.rows_).size(), "a layer needs this rank's ",
          local(result.rows_).size(), " of ", result.rows_, " rows, got ", x.shape());
    result.all_ = Tensor<Dev>(dev, x.dtype(), x.shape().with(0, most * group_.size()));
    auto in = x.view();
    if (x.shape()[0] < most) {  // pads the share with zeros, at its place in the gathered tensor
      const auto place = result.all_.mut().slice(rank * most, (rank + 1) * most);
      dev.fill_zero(place.bytes(), place.size_bytes());
      dev.copy(place.bytes(), in.bytes(), in.size_bytes());
      in = place;
    }
    result.share_ = std::move(x);  // stays until the all-gather has read it
    result.done_ = group_.all_gather(dev, in, result.all_.mut());
    return result;
  }
  [[nodiscard]] Tensor<Dev> gather(Dev& dev, Tensor<Dev> x, const Tape<Dev>& tape) {
    return start_gather(dev, std::move(x), tape).wait();
  }
  /// Returns this rank's rows of an x that every rank has completely.
  [[nodiscard]] Tensor<Dev> take(Dev& dev, Tensor<Dev> x) const {
    if (!is_split()) return x;
    const auto rows = local(x.shape()[0]);
    return clone(dev, x.view().slice(rows.first, rows.last));
  }

  /// Allocates a summand of all rows; its surplus rows at the end are zero.
  [[nodiscard]] Tensor<Dev> summand(Dev& dev, DType type, const Shape& shape) const {
    if (!is_split()) return {dev, type, shape};
    Tensor<Dev> result(dev, type, shape.with(0, max_local(shape[0]) * group_.size()));
    const auto rest = result.mut().slice(shape[0], result.shape()[0]);
    if (rest.count() > 0) dev.fill_zero(rest.bytes(), rest.size_bytes());
    return result;
  }
  /// Sums all ranks' summands and returns this rank's rows; the engine adds in any order. The caller keeps `summand`
  /// until `done`, when the rows are valid.
  [[nodiscard]] Tensor<Dev> scatter(Dev& dev, const Tensor<Dev>& summand, std::int64_t rows,
                                    Event<Dev>& done) {
    Tensor<Dev> y(dev, summand.dtype(), summand.shape().with(0, max_local(rows)));
    done = group_.reduce_scatter(dev, summand.view(), y.mut());
    return std::move(y).shortened(local(rows).size());
  }

 private:
  Comm<Dev> group_;
  int pieces_ = 1;
};

}  // namespace dhp
