// Embedding: looks up the rows of a table at the ids of a side input. backward returns an empty tensor.
#pragma once

#include <dhp/core/append.hpp>
#include <dhp/nn/layer.hpp>
#include <dhp/ops/elementwise.hpp>
#include <dhp/ops/embedding.hpp>
#include <dhp/ops/rows.hpp>

#include <string>
#include <vector>

namespace dhp {

struct EmbeddingOptions {
  std::int64_t entries = 0, columns = 0;
  std::string ids;  ///< name of the side input with the ids, i32 [rows]
  double init_deviation = 0.02;
};

/// y = table[ids], [rows, columns]. By words, each rank looks up the ids of its own entries, and the results are summed
/// over the ranks. If ranks share rows, y and dy hold this rank's rows.
template <class Dev>
class Embedding {
 public:
  Embedding(ModelBuilder<Dev>& build, const std::string& name, EmbeddingOptions options)
      : options_(std::move(options)), shares_(build.row_shares()) {
    table_ = build.pieces({.name = name + ".weight",
                           .shape = {options_.entries, options_.columns},
                           .init = normal(options_.init_deviation)},
                          {.words = 0});
    by_words_ = table_[0]->spec.placement == Placement::words;
    // Only one summand of each row is not zero, so the sum is exact in any order.
    if (by_words_) sum_ = GroupSum<Dev>(build.tensor);
  }

  /// The pieces of the table that this rank holds; without tensor groups there is one.
  [[nodiscard]] const ParameterList<Dev>& table() const { return table_; }

  Tensor<Dev> forward(Dev& dev, Tensor<Dev>, Tape<Dev>& tape) {
    const auto& all = tape.batch().at(options_.ids);
    auto ids = all.view();
    check_ids(ids);
    const auto own = shares_.local(all.count());
    if (!by_words_) ids = ids.slice(own);
    const auto type = table_[0]->value.dtype();
    const Shape shape{ids.count(), options_.columns};
    auto y = by_words_ ? shares_.summand(dev, type, shape) : Tensor<Dev>(dev, type, shape);
    const auto to = y.mut().slice(0, ids.count());
    Tensor<Dev> more;
    for (const auto& piece : table_) {
      const bool first = piece == table_[0];
      if (!first && !more) more = Tensor<Dev>(dev, type, shape);
      embedding_forward(dev, piece->value, ids, piece->spec.part.first, first ? to : more.mut());
      if (!first) add(dev, to, more.view(), to);
    }
    if (!by_words_ || !shares_.is_split()) {
      sum_(dev, y);
      return y;
    }
    Event<Dev> done;
    auto share = shares_.scatter(dev, y, all.count(), done);
    done.wait();
    return share;
  }

  Tensor<Dev> backward(Dev& dev, Tensor<Dev> dy, Tape<Dev>& tape) {
    return backward_of_all(dev, {this}, std::move(dy), tape);
  }
  /// Runs the backward pass of a sum of embeddings; dy is the sum's gradient. summands: the last one of the forward
  /// pass comes first.
  static Tensor<Dev> backward_of_all(Dev& dev, const std::vector<Embedding*>& summands,
                                     Tensor<Dev> dy, Tape<Dev>& tape) {
    auto& shares = summands.front()->shares_;
    dy = shares.gather(dev, std::move(dy), tape);
    for (auto* const each : summands) each->backward_of_rows(dev, dy.share(), tape);
    return {};
  }

  [[nodiscard]] Shape output_shape(const Shape&, const MicroBatch<Dev>& batch) const {
    return shares_.local(Shape{batch.at(options_.ids).count(), options_.columns});
  }
  [[nodiscard]] double flops(const Shape& in, const MicroBatch<Dev>& batch) const {
    return static_cast<double>(output_shape(in, batch).count());
  }
  void parameters(ParameterList<Dev>& out) const { detail::append(out, table_); }

 private:
  /// dy: the gradient of all rows, [all rows, columns], already gathered if ranks share rows.
  void backward_of_rows(Dev& dev, Tensor<Dev> dy, Tape<Dev>& tape) {
    if (!is_trained(table_)) return;
    tape.weight_gradient(dev, [table = table_, ids = tape.batch().at(options_.ids).share(),
                               dy = std::move(dy), groups = tape.row_groups()](Dev& device) {
      for (const auto& piece : table)
        detail::for_row_groups(groups, ids.count(), [&](Range of_group) {
          piece->accumulate(device, [&](View<Dev> gradient, double beta) {
            embedding_backward(device, dy.view().slice(of_group), ids.view().slice(of_group),
                               piece->spec.part.first, gradient, beta);
          });
        });
    });
  }

  /// On a GPU, where kernels cannot throw, an id outside the table gives a row of zeros instead of an error.
  void check_ids(ConstView<Dev> ids) const {
    check(ids.dtype() == DType::i32, "the ids in \"", options_.ids, "\" are ", ids.dtype(),
          "; give them as i32");
    if constexpr (std::same_as<Dev, Cpu>)
      for (std::int64_t row = 0; row < ids.count(); ++row) {
        const auto id = ids.template data<std::int32_t>()[row];
        check(id >= 0 && id < options_.entries, "id ", id, " of row ", row, " of \"", options_.ids,
              "\" is not among the ", options_.entries, " entries of ", table_[0]->spec.name);
      }
  }

  EmbeddingOptions options_;
  RowShares<Dev> shares_;
  bool by_words_ = false;
  ParameterList<Dev> table_;
  GroupSum<Dev> sum_;
};

}  // namespace dhp
