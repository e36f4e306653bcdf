// Embedding: the rows of a table at the ids of a side input. backward returns an empty tensor.
#pragma once

#include <dhp/nn/layer.hpp>
#include <dhp/ops/elementwise.hpp>
#include <dhp/ops/embedding.hpp>

#include <string>

namespace dhp {

struct EmbeddingOptions {
  std::int64_t entries = 0;
  std::int64_t columns = 0;
  std::string ids;  ///< name of the side input, i32 [rows]
  double init_deviation = 0.02;
};

/// y [rows, columns] = table[ids]. By words, each rank looks up its entries, and y is their sum.
template <class Dev>
class Embedding {
 public:
  Embedding(ModelBuilder<Dev>& build, const std::string& name, EmbeddingOptions options)
      : options_(std::move(options)) {
    table_ = build.pieces({.name = name + ".weight",
                           .shape = {options_.entries, options_.columns},
                           .init = normal(options_.init_deviation)},
                          {.words = 0});
    // All but one of the summands are zero, so their sum is exact in any order.
    if (table_[0]->spec.placement == Placement::words) sum_ = GroupSum<Dev>(build.tensor);
  }

  /// The pieces that this rank holds; one without tensor groups.
  [[nodiscard]] const ParameterList<Dev>& table() const { return table_; }

  Tensor<Dev> forward(Dev& dev, Tensor<Dev>, Tape<Dev>& tape) {
    const auto& ids = tape.batch().at(options_.ids);
    Tensor<Dev> y(dev, table_[0]->value.dtype(), {ids.count(), options_.columns}), more;
    for (const auto& piece : table_) {
      const bool first = piece == table_[0];
      if (!first && !more) more = Tensor<Dev>(dev, y.dtype(), y.shape());
      embedding_forward(dev, piece->value, ids.view(), piece->spec.part.first,
                        first ? y.mut() : more.mut());
      if (!first) add(dev, y.view(), more.view(), y.mut());
    }
    sum_(dev, y);
    return y;
  }

  Tensor<Dev> backward(Dev& dev, Tensor<Dev> dy, Tape<Dev>& tape) {
    if (!is_trained(table_)) return {};
    tape.weight_gradient(dev, [table = table_, ids = tape.batch().at(options_.ids).share(),
                               dy = std::move(dy)](Dev& device) {
      for (const auto& piece : table)
        piece->accumulate(device, [&](View<Dev> gradient, double beta) {
          embedding_backward(device, dy.view(), ids.view(), piece->spec.part.first, gradient, beta);
        });
    });
    return {};
  }

  [[nodiscard]] Shape output_shape(const Shape&, const MicroBatch<Dev>& batch) const {
    return {batch.at(options_.ids).count(), options_.columns};
  }
  [[nodiscard]] double flops(const Shape& in, const MicroBatch<Dev>& batch) const {
    return static_cast<double>(output_shape(in, batch).count());
  }
  void parameters(ParameterList<Dev>& out) const {
    out.insert(out.end(), table_.begin(), table_.end());
  }

 private:
  EmbeddingOptions options_;
  ParameterList<Dev> table_;
  GroupSum<Dev> sum_;
};

}  // namespace dhp
