// StageLayers: the layers of a pipeline stage, and the gradients that their backward passes compute. The loss counts as
// the layer after the last one. In an action, `chunk` is the index of a layer in own().
#pragma once

#include <dhp/nn/loss.hpp>
#include <dhp/parallel/action.hpp>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

namespace dhp::detail {
template <class Dev>
class StageLayers {
 public:
  StageLayers() = default;
  /// cuts: the first layer of each part, then the number of layers.
  StageLayers(Model<Dev> model, std::vector<std::int64_t> cuts, const Wiring& wiring, int stage)
      : model_(std::move(model)), cuts_(std::move(cuts)), wiring_(wiring), stage_(stage) {
    find_first_trained();
    for (int chunk = 0; chunk < wiring_.chunks; ++chunk) {
      first_of_chunk_.push_back(static_cast<int>(own_.size()));
      const auto part = wiring_.part(stage_, chunk);
      for (int at = first(part); at < end(part); ++at) own_.push_back(at);
    }
    first_of_chunk_.push_back(static_cast<int>(own_.size()));
  }

  [[nodiscard]] auto& loss() { return model_.loss; }
  [[nodiscard]] const auto& loss() const { return model_.loss; }
  [[nodiscard]] AnyLayer<Dev>& operator[](int at) { return model_.layers[as_size(at)]; }
  [[nodiscard]] const std::vector<std::int64_t>& cuts() const { return cuts_; }
  [[nodiscard]] int layer_of_loss() const { return static_cast<int>(model_.layers.size()); }
  /// The layers of this stage, chunk after chunk.
  [[nodiscard]] const std::vector<int>& own() const { return own_; }
  /// The indices in own() at which chunks begin, then its size.
  [[nodiscard]] const std::vector<int>& first_of_chunk() const { return first_of_chunk_; }
  [[nodiscard]] int layer(const Action& action) const { return own_[as_size(action.chunk)]; }
  [[nodiscard]] std::string_view name_of(int layer) const {
    if (layer == layer_of_loss()) return "loss";
    return model_.layers[as_size(layer)].name();
  }
  [[nodiscard]] int stage_of(int layer) const { return wiring_.stage_of(part_of(layer)); }
  [[nodiscard]] bool is_here(int layer) const { return stage_of(layer) == stage_; }
  /// Whether this layer's activations go from later stages to earlier ones.
  [[nodiscard]] bool goes_back(int layer) const {
    return wiring_.goes_back(wiring_.chunk_of(part_of(layer)));
  }
  /// Whether two actions belong to the same pass through a part of the model.
  [[nodiscard]] bool in_one_pass(const Action& a, const Action& b) const {
    return a.kind == b.kind && a.micro_batch == b.micro_batch &&
           part_of(layer(a)) == part_of(layer(b));
  }

  [[nodiscard]] ParameterList<Dev> parameters_of(int at) const {
    ParameterList<Dev> list;
    if (at == layer_of_loss()) model_.loss.parameters(list);
    else model_.layers[as_size(at)].parameters(list);
    for (const auto& parameter : list)
      check(parameter != nullptr, "layer ", name_of(at), " lists a parameter that is null");
    return list;
  }
  [[nodiscard]] std::vector<ParameterList<Dev>> parameters_by_stage() const {
    std::vector<ParameterList<Dev>> lists(as_size(wiring_.stages));
    for (int at = 0; at <= layer_of_loss(); ++at)
      for (auto& parameter : parameters_of(at))
        lists[as_size(stage_of(at))].push_back(std::move(parameter));
    return lists;
  }

  [[nodiscard]] bool is_trained_from(int layer) const { return layer >= first_trained_; }
  /// Whether the gradient of a layer's input is needed.
  [[nodiscard]] bool returns_gradient(int layer) const { return first_trained_ < layer; }
  /// The layer whose output (forward) or input gradient (backward) the action takes; -1: none.
  [[nodiscard]] int source_of(const Action& action) const {
    const int of = layer(action);
    if (action.kind == Action::Kind::forward) return of - 1;
    const bool none = action.kind == Action::Kind::backward_weight || of == layer_of_loss();
    return none || !returns_gradient(of + 1) ? -1 : of + 1;
  }
  [[nodiscard]] Shape input_shape(int layer, const MicroBatch<Dev>& of) const {
    Shape shape = of.input.shape();
    for (int at = 0; at < layer; ++at) shape = model_.layers[as_size(at)].output_shape(shape, of);
    return shape;
  }

  /// Checks output_shape, because the receiving stage allocates by it.
  [[nodiscard]] Tensor<Dev> forward(Dev& dev, int at, Tensor<Dev> x, Tape<Dev>& tape) {
    auto& layer = (*this)[at];
    const Shape in = x.shape();
    auto y = layer.forward(dev, std::move(x), tape);
    const auto declared = layer.output_shape(in, tape.batch());
    check(y.shape() == declared, "layer ", layer.name(), ": its output_shape says ", declared,
          " for an input of ", in, ", but its forward pass gives ", y.shape());
    return y;
  }

 private:
  [[nodiscard]] int first(std::int64_t part) const {
    return static_cast<int>(cuts_[as_size(part)]);
  }
  /// The loss belongs to the last part.
  [[nodiscard]] int end(std::int64_t part) const {
    return first(part + 1) + (part + 1 == wiring_.parts() ? 1 : 0);
  }
  [[nodiscard]] std::int64_t part_of(int layer) const {
    const auto next = std::upper_bound(cuts_.begin() + 1, cuts_.end() - 1, layer);
    return next - cuts_.begin() - 1;
  }

  /// No backward pass is needed before the first layer with a trained parameter.
  void find_first_trained() {
    bool any_frozen = false;
    int first = layer_of_loss() + 1;
    for (int at = layer_of_loss(); at >= 0; --at) {
      const auto list = parameters_of(at);
      if (is_trained(list)) first = at;
      for (const auto& parameter : list) any_frozen = any_frozen || parameter->spec.frozen;
    }
    if (!any_frozen) return;
    check(first <= layer_of_loss(),
          "all of the model's parameters are frozen: there is nothing to train");
    first_trained_ = first;
  }

  Model<Dev> model_;
  std::vector<std::int64_t> cuts_;
  Wiring wiring_{1, 1};
  int stage_ = 0;
  std::vector<int> own_, first_of_chunk_;
  int first_trained_ = 0;
};
}  // namespace dhp::detail
