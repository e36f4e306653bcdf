// StageLayers: which layers of the model a pipeline stage runs, and which of their gradients it needs. The loss counts
// as the layer after the last one.
#pragma once

#include <dhp/comm/comm.hpp>
#include <dhp/nn/loss.hpp>
#include <dhp/parallel/action.hpp>

#include <array>
#include <utility>
#include <vector>

namespace dhp::detail {
/// Source of the gradients of what a stage has sent to the next one, if it does not simply receive them: for
/// PipelineParallel::take_gradients_from(). Called in training only.
template <class Dev>
class OutputGradients {
 public:
  virtual ~OutputGradients() = default;
  /// The activation of a micro-batch goes to the next stage.
  virtual void sent(int micro_batch, const Tensor<Dev>& activation) = 0;
  /// The gradient of that, when the stage goes backward.
  [[nodiscard]] virtual Tensor<Dev> gradient(Dev& dev, int micro_batch) = 0;
  /// After a step's last action. All that the next stage has sent must have been received.
  virtual void end_step(Dev& dev) = 0;
};

/// A stage's output for a micro-batch, and who sends back its gradients, in the order of micro-batches.
template <class Dev>
struct StageOutput {
  Shape shape{};
  Comm<Dev> backward{};
  int next = 0;  ///< the rank that sends
};

/// The pipeline axis for chunks that go forward, and for those that go back, whose messages must not wait for others.
template <class Dev>
[[nodiscard]] std::array<Comm<Dev>, 2> both_ways(Comm<Dev>& pipeline, bool v_shaped) {
  return {pipeline, v_shaped ? pipeline.split(0, pipeline.rank()) : pipeline};
}

template <class Dev>
class StageLayers {
 public:
  StageLayers() = default;
  /// cuts: the first layer of each part, and the end.
  StageLayers(Model<Dev> model, std::vector<std::int64_t> cuts, const Wiring& wiring, int stage)
      : model_(std::move(model)), cuts_(std::move(cuts)), wiring_(wiring), stage_(stage) {
    find_first_trained();
  }

  [[nodiscard]] auto& loss() { return model_.loss; }
  [[nodiscard]] const auto& loss() const { return model_.loss; }
  [[nodiscard]] AnyLayer<Dev>& operator[](int at) {
    return model_.layers[static_cast<std::size_t>(at)];
  }
  [[nodiscard]] const std::vector<std::int64_t>& cuts() const { return cuts_; }
  [[nodiscard]] int parts() const { return static_cast<int>(cuts_.size()) - 1; }
  [[nodiscard]] int part(int chunk) const { return static_cast<int>(wiring_.part(stage_, chunk)); }
  [[nodiscard]] int stage_of(int part) const { return wiring_.stage_of(part); }
  [[nodiscard]] bool is_here(int part) const { return stage_of(part) == stage_; }
  [[nodiscard]] bool goes_back(int chunk) const { return wiring_.goes_back(chunk); }
  [[nodiscard]] int first(int part) const {
    return static_cast<int>(cuts_[static_cast<std::size_t>(part)]);
  }
  [[nodiscard]] int layer_of_loss() const { return static_cast<int>(model_.layers.size()); }
  [[nodiscard]] bool holds_loss(int part) const { return part == parts() - 1; }

  [[nodiscard]] ParameterList<Dev> parameters_of(int at) const {
    ParameterList<Dev> list;
    if (at == layer_of_loss()) model_.loss.parameters(list);
    else model_.layers[static_cast<std::size_t>(at)].parameters(list);
    return list;
  }
  [[nodiscard]] std::vector<ParameterList<Dev>> parameters_by_stage() const {
    std::vector<ParameterList<Dev>> lists(static_cast<std::size_t>(wiring_.stages));
    for (int part = 0; part < parts(); ++part) {
      const int last = holds_loss(part) ? layer_of_loss() : first(part + 1) - 1;
      auto& list = lists[static_cast<std::size_t>(stage_of(part))];
      for (int at = first(part); at <= last; ++at)
        for (auto& parameter : parameters_of(at)) list.push_back(std::move(parameter));
    }
    return lists;
  }

  /// The first layer with a trained parameter.
  [[nodiscard]] int first_trained() const { return first_trained_; }
  /// Whether the gradient of a part's input is needed.
  [[nodiscard]] bool returns_gradient(int part) const {
    return part > 0 && first_trained_ < first(part);
  }
  /// The part whose output or gradient an action begins with; -1: none.
  [[nodiscard]] int source_of(const Action& action) const {
    const int of = part(action.chunk);
    if (action.kind == Action::Kind::forward) return of - 1;
    const bool none = action.kind == Action::Kind::backward_weight || holds_loss(of);
    return none || !returns_gradient(of + 1) ? -1 : of + 1;
  }
  [[nodiscard]] Shape input_shape(int part, const MicroBatch<Dev>& of) const {
    Shape shape = of.input.shape();
    for (int at = 0; at < first(part); ++at)
      shape = model_.layers[static_cast<std::size_t>(at)].output_shape(shape, of);
    return shape;
  }

  /// Checks output_shape, because the receiving stage allocates by it.
  [[nodiscard]] Tensor<Dev> forward(Dev& dev, int at, Tensor<Dev> x, Tape<Dev>& tape) {
    auto& layer = (*this)[at];
    const Shape in = x.shape();
    auto y = layer.forward(dev, std::move(x), tape);
    const auto said = layer.output_shape(in, tape.batch());
    check(y.shape() == said, "layer ", layer.name(), ": its output_shape says ", said,
          " for an input of ", in, ", but its forward pass gives ", y.shape());
    return y;
  }

  /// The loss first, then the layers from the last to the first.
  void for_each_of(int chunk, FunctionRef<void(int)> body) const {
    const int part = this->part(chunk);
    if (holds_loss(part)) body(layer_of_loss());
    for (int at = first(part + 1); at-- > first(part);) body(at);
  }
  void for_each(FunctionRef<void(int)> body) const {
    for (int chunk = wiring_.chunks; chunk-- > 0;) for_each_of(chunk, body);
  }

 private:
  /// No backward pass is needed below the first layer with a trained parameter.
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
  int first_trained_ = 0;
};
}  // namespace dhp::detail
