// Parts that BERT and decoders share: the embeddings of tokens, the choice of rows, and parts that may be recomputed.
#pragma once

#include <dhp/nn/embedding.hpp>
#include <dhp/nn/recompute.hpp>
#include <dhp/nn/sequential.hpp>

#include <ranges>
#include <string>
#include <utility>
#include <vector>

namespace examples {

/// Sums each token's rows of several tables, then applies layers. The first table is that of words. y [rows, hidden].
template <class Dev>
class TokenEmbeddings {
 public:
  /// flops_of_element: FLOP of the sums and layers, for each element of y.
  TokenEmbeddings(std::vector<dhp::Embedding<Dev>> tables, dhp::Sequential<Dev> after,
                  double flops_of_element)
      : tables_(std::move(tables)), after_(std::move(after)), flops_(flops_of_element) {}

  [[nodiscard]] const dhp::ParameterList<Dev>& word_table() const { return tables_[0].table(); }

  dhp::Tensor<Dev> forward(Dev& dev, dhp::Tensor<Dev>, dhp::Tape<Dev>& tape) {
    auto x = tables_[0].forward(dev, {}, tape);
    for (auto& table : tables_ | std::views::drop(1)) {
      const auto more = table.forward(dev, {}, tape);
      add(dev, x.view(), more.view(), x.mut());
    }
    return after_.forward(dev, std::move(x), tape);
  }
  dhp::Tensor<Dev> backward(Dev& dev, dhp::Tensor<Dev> dy, dhp::Tape<Dev>& tape) {
    auto dx = after_.backward(dev, std::move(dy), tape);
    std::vector<dhp::Embedding<Dev>*> summands;
    for (auto& table : tables_ | std::views::reverse) summands.push_back(&table);
    return dhp::Embedding<Dev>::backward_of_all(dev, summands, std::move(dx), tape);
  }
  [[nodiscard]] dhp::Shape output_shape(const dhp::Shape& in,
                                        const dhp::MicroBatch<Dev>& batch) const {
    return tables_[0].output_shape(in, batch);
  }
  [[nodiscard]] double flops(const dhp::Shape& in, const dhp::MicroBatch<Dev>& batch) const {
    return flops_ * static_cast<double>(output_shape(in, batch).count());
  }
  void parameters(dhp::ParameterList<Dev>& out) const {
    for (const auto& table : tables_) table.parameters(out);
    after_.parameters(out);
  }

 private:
  std::vector<dhp::Embedding<Dev>> tables_;
  dhp::Sequential<Dev> after_;
  double flops_;
};

/// Returns the rows of x [rows, columns] with these numbers.
template <class Dev>
[[nodiscard]] dhp::Tensor<Dev> rows_at(Dev& dev, const dhp::Tensor<Dev>& x,
                                       const dhp::Tensor<Dev>& numbers) {
  dhp::Tensor<Dev> chosen(dev, x.dtype(), {numbers.count(), x.columns()});
  gather_rows(dev, x.view(), numbers.view(), chosen.mut());
  return chosen;
}

/// Adds a part of a model. With `recompute` only its input is kept, and backward computes the part again.
template <class Dev>
void add_part(dhp::Model<Dev>& model, const std::string& name, auto part, bool recompute) {
  if (recompute) model.add(name, dhp::recompute<Dev>(std::move(part)));
  else model.add(name, std::move(part));
}

}  // namespace examples
