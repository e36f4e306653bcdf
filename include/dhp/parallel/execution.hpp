// Execution: runs a pipeline stage's list of actions once, layer by layer. The list alone decides the order of passes
// and moves.
#pragma once

#include <dhp/nn/context.hpp>
#include <dhp/ops/step.hpp>
#include <dhp/parallel/output_gradients.hpp>
#include <dhp/parallel/stage_units.hpp>
#include <dhp/parallel/tied.hpp>
#include <dhp/parallel/trainable.hpp>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace dhp::detail {

/// The state of a stage that all its steps share.
template <class Dev>
struct StageParts {
  Comm<Dev> tensor, context;
  std::array<Comm<Dev>, 2> forward, backward;  // [1]: for chunks that go back (Wiring::goes_back)
  StageLayers<Dev> layers{};
  std::unique_ptr<OutputGradients<Dev>> output_gradients{};  // null: the next stage sends them
  TiedParameters<Dev> tied{};
  ParameterStore<Dev> store{};
  StageUnits<Dev> units{};
};

/// The communicators of chunks that go forward and of chunks that go back. They differ only in a V, so that no message
/// waits behind messages of the other direction.
template <class Dev>
[[nodiscard]] std::array<Comm<Dev>, 2> both_ways(Comm<Dev>& pipeline, bool v_shaped) {
  return {pipeline, v_shaped ? pipeline.split(0, pipeline.rank()) : pipeline};
}

template <class Dev>
class Execution {
 public:
  using Ready = FunctionRef<void(Range)>;

  Execution(Dev& dev, StageParts<Dev>& stage, const Step<Dev>& step, StepContext::Mode mode,
            Replicas<Dev>* replicas, bool predicts = false)
      : dev_(&dev),
        stage_(&stage),
        batches_(step.batches),
        context_(step.context),
        replicas_(replicas),
        predicts_(predicts) {
    check_has_replicas(stage.store, replicas);
    const auto names = stage.layers.loss().term_names();
    const auto terms = std::ssize(names);
    const auto& options = stage.store.options();
    const ContextCut cut{options.context_groups, options.tensor_groups};
    if (!predicts && (stage.context.size() > 1 || cut.groups > 1)) {
      for (const auto& whole : step.batches)
        shares_.push_back(context_share(dev, whole, stage.context, cut));
      batches_ = shares_;
    }
    context_.mode = mode;
    losses = Tensor<Dev>::zeros(dev, DType::f64, {std::ssize(step.batches), terms, loss_fields});
    if (mode == StepContext::Mode::eval) return;
    const auto counts = device_counts(dev, step, names);
    const auto plain = step.state ? Tensor<Dev>() : make_step_state(dev, StepState{});
    scales_ = Tensor<Dev>(dev, DType::f64, {terms});
    objective_scales(dev, counts.view(), step.state ? step.state : plain.view(), scales_.mut());
  }

  /// Skips passes of micro-batches that this replica does not have. Calls ready(range) for each reduce.
  void run(const std::vector<Action>& list, Ready ready) {
    const Action *first = list.data(), *const end = first + list.size();
    while (first != end) {
      const auto* const after = end_of_pass(first, end);
      const auto* const next = std::find_if_not(after, end, is_move);
      next_ = next != end && has_batch(*next) ? next : nullptr;
      if (is_move(*first) || !has_batch(*first)) {
        run_each(first, after, ready);
      } else {
        const auto scope = dev_->scope(scope_of(first->kind), first->micro_batch);
        run_each(first, after, ready);
      }
      first = after;
    }
  }

  Tensor<Dev> losses;                    ///< f64 [micro-batches, terms, loss_fields]
  std::vector<Tensor<Dev>> predictions;  ///< one for each micro-batch, in order

 private:
  /// A micro-batch in a layer, between its forward and its last backward action.
  struct InFlight {
    Tape<Dev> tape;
    Shape x{};                                              // the shape of the layer's input
    std::vector<DeferredGradient<Dev>> weight_gradients{};  // deferred
  };
  using Key = std::pair<int, int>;  // layer and micro-batch

  /// Returns the end of the pass through a part's layers that begins at `first`, including moves inside and after it.
  /// Reductions of tied weights are excluded, because they wait for other stages.
  [[nodiscard]] const Action* end_of_pass(const Action* first, const Action* end) const {
    const auto* at = first + 1;
    if (is_move(*first)) return at;
    const auto belongs = [&](const Action& action) {
      return is_move(action)
                 ? action.kind != Action::Kind::reduce || !stage_->units[action.unit()].tied()
                 : stage_->layers.in_one_pass(*first, action);
    };
    while (at != end && belongs(*at)) ++at;
    return at;
  }
  [[nodiscard]] static const char* scope_of(Action::Kind kind) {
    return kind == Action::Kind::forward           ? "forward"
           : kind == Action::Kind::backward_weight ? "weight gradients"
                                                   : "backward";
  }
  [[nodiscard]] bool has_batch(const Action& pass) const {
    return pass.micro_batch < std::ssize(batches_);
  }
  [[nodiscard]] const MicroBatch<Dev>& batch(const Action& pass) const {
    return batches_[as_size(pass.micro_batch)];
  }
  [[nodiscard]] Key key(const Action& pass) const {
    return {stage_->layers.layer(pass), pass.micro_batch};
  }

  void run_each(const Action* first, const Action* end, Ready ready) {
    for (; first != end; ++first) {
      const auto& action = *first;
      if (!is_move(action) && !has_batch(action)) continue;
      switch (action.kind) {
        case Action::Kind::forward: forward(action); break;
        case Action::Kind::backward: backward(action); break;
        case Action::Kind::backward_input: backward(action); break;
        case Action::Kind::backward_weight: backward_weight(action); break;
        case Action::Kind::unshard: replicas_->unshard(*dev_, bucket(action)); break;
        case Action::Kind::reshard: replicas_->reshard(*dev_, bucket(action)); break;
        case Action::Kind::reduce: reduce(stage_->units[action.unit()], ready); break;
      }
    }
  }

  // --- passes ---
  void forward(const Action& action) {
    auto& layers = stage_->layers;
    const auto [at, micro_batch] = key(action);
    const bool trains = context_.mode == StepContext::Mode::train;
    InFlight state{Tape<Dev>(context_, &batch(action))};
    auto x = take(action);
    const auto compute = stage_->store.options().compute;
    if (at == 0) x = in_type(*dev_, batch(action).input.share(), compute);
    state.x = x.shape();
    stage_->units.finish_gathers(*dev_, action);
    if (at < layers.layer_of_loss()) {
      auto forgets = state.tape.nested(false, false);
      auto& tape = layers.is_trained_from(at) ? state.tape : forgets;
      x = layers.forward(*dev_, at, std::move(x), tape);
      check(x.dtype() == compute, "layer ", layers.name_of(at), ": its forward pass gives ",
            x.dtype(), ", and the model computes in ", compute);
      if (stage_->output_gradients && trains && !layers.is_here(at + 1))
        stage_->output_gradients->sent(micro_batch, x);
      hand_over(action, at + 1, stage_->forward, std::move(x));
    } else if (predicts_) {
      predictions.push_back(layers.loss().predict(*dev_, std::move(x), state.tape));
    } else {
      const auto row = losses.mut().slice(micro_batch, micro_batch + 1);
      layers.loss().forward(*dev_, std::move(x), state.tape, row.as({row.shape()[1], loss_fields}));
    }
    if (trains) in_flight_.emplace(key(action), std::move(state));
  }
  /// Computes the gradient of a layer's input, and of its weights unless a backward_weight does this later.
  void backward(const Action& action) {
    auto& layers = stage_->layers;
    const auto [at, micro_batch] = key(action);
    const auto state = in_flight_.find(key(action));
    auto& [tape, x, weight_gradients] = state->second;
    const bool defers = action.kind == Action::Kind::backward_input;
    if (defers) tape.defer_to(&weight_gradients);
    auto dy = take(action);
    stage_->units.finish_gathers(*dev_, action);
    if (at == layers.layer_of_loss()) {
      dy = layers.loss().backward(*dev_, scales_.view(), tape);
    } else if (layers.is_trained_from(at)) {
      if (stage_->output_gradients && !layers.is_here(at + 1))
        dy = stage_->output_gradients->gradient(*dev_, micro_batch);
      dy = layers[at].backward(*dev_, std::move(dy), tape);
    }
    if (layers.returns_gradient(at)) {
      check(dy.shape() == x && dy.dtype() == stage_->store.options().compute, "layer ",
            layers.name_of(at), ": its backward pass gives ", dy.shape(), " of ", dy.dtype(),
            " for an input of ", x, " of ", stage_->store.options().compute);
      hand_over(action, at - 1, stage_->backward, std::move(dy));
    }
    if (!defers) in_flight_.erase(state);
  }
  void backward_weight(const Action& action) {
    (void)take(action);
    auto state = in_flight_.extract(key(action));
    try {
      for (auto& work : state.mapped().weight_gradients) work(*dev_);
    } catch (const std::exception&) {
      rethrow_inside(std::string(stage_->layers.name_of(key(action).first)));
    }
  }

  // --- messages ---
  /// Where an action's input comes from.
  struct Source {
    int from;        // the layer that made it; -1: none
    Comm<Dev>* way;  // null: no message comes
    int stage;
    Shape shape;
  };
  [[nodiscard]] Source source_of(const Action& action) {
    const auto& layers = stage_->layers;
    const bool forward = action.kind == Action::Kind::forward;
    const int at = layers.layer(action), from = layers.source_of(action);
    if (from < 0 || layers.is_here(from)) return {from, nullptr, 0, {}};
    if (stage_->output_gradients && !forward) return {-1, nullptr, 0, {}};
    return {from, &(forward ? stage_->forward : stage_->backward)[layers.goes_back(at)],
            layers.stage_of(from), layers.input_shape(std::max(at, from), batch(action))};
  }
  /// Returns the action's input, or an empty tensor if it has none. Then announces the next pass's first message to the
  /// engine.
  [[nodiscard]] Tensor<Dev> take(const Action& action) {
    const auto compute = stage_->store.options().compute;
    Tensor<Dev> x;
    if (const auto [from, way, stage, shape] = source_of(action); way != nullptr) {
      x = Tensor<Dev>(*dev_, compute, shape);
      way->recv(*dev_, x.mut(), stage);
      // If this is not finite, the stage that sent it names the layer.
      x = looked_at(*dev_, {}, "", context_.first_nonfinite, std::move(x));
    } else if (from >= 0) {
      x = std::move(handed_over_.extract(key(action)).mapped());
    }
    if (const auto* next = std::exchange(next_, nullptr))
      if (const auto [from, way, stage, shape] = source_of(*next); way != nullptr)
        way->expect(*dev_, compute, shape, stage);
    return x;
  }
  void hand_over(const Action& action, int to, std::array<Comm<Dev>, 2>& ways, Tensor<Dev> x) {
    const auto& layers = stage_->layers;
    if (layers.is_here(to)) {
      handed_over_.emplace(Key(to, action.micro_batch), std::move(x));
    } else {
      auto& way = ways[layers.goes_back(layers.layer(action))];
      way.send(*dev_, std::move(x), layers.stage_of(to));
    }
  }

  // --- moves ---
  [[nodiscard]] ShardedBucket<Dev>& bucket(const Action& move) {
    return *stage_->units[move.unit()].bucket;
  }
  /// Called when this replica's gradients of the unit are complete.
  void reduce(const typename StageUnits<Dev>::Unit& unit, Ready ready) {
    if (unit.tied() && !std::exchange(tied_are_summed_, true))
      stage_->tied.sum(*dev_, stage_->store);
    for (const auto& parameter : unit.parameters)
      sum_shares(*dev_, stage_->store, *parameter, stage_->tensor);
    ready(unit.range);
  }

  Dev* dev_;
  StageParts<Dev>* stage_;
  std::vector<MicroBatch<Dev>> shares_;  // with a context axis, this rank's shares of micro-batches
  std::span<const MicroBatch<Dev>> batches_;
  StepContext context_;
  Replicas<Dev>* replicas_;
  bool predicts_;
  Tensor<Dev> scales_;            // weight of each loss term in the objective, f64 [terms]
  const Action* next_ = nullptr;  // first action of the next pass; null: none, or already announced
  std::map<Key, InFlight> in_flight_;
  std::map<Key, Tensor<Dev>> handed_over_;  // between layers of this stage, by receiving layer
  bool tied_are_summed_ = false;
};

}  // namespace dhp::detail
