// P, the pipeline axis: this rank keeps its slice of the layers and runs a schedule's actions over its
// micro-batches. With one stage it is the serial program, gradient accumulation included.
#pragma once

#include <dhp/comm/mesh.hpp>
#include <dhp/nn/context.hpp>
#include <dhp/ops/reduce.hpp>
#include <dhp/ops/step.hpp>
#include <dhp/parallel/execution.hpp>
#include <dhp/parallel/partition.hpp>
#include <dhp/parallel/schedule.hpp>
#include <dhp/parallel/schedule_check.hpp>
#include <dhp/parallel/stage_layers.hpp>
#include <dhp/parallel/tied.hpp>
#include <dhp/parallel/trainable.hpp>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>

namespace dhp {

struct PipelineOptions {
  AnySchedule schedule = OneForwardOneBackward{};
  int chunks = 1;  ///< parts of the model per rank; only some schedules allow more than one
  /// Cost of each layer, to balance the parts. Empty: flops on the example batch, or measured seconds.
  std::vector<double> costs{};
  bool measure_costs = false;  ///< not with context groups, whose rows one example does not have
};

template <class Dev>
class PipelineParallel {
 public:
  using Ready = FunctionRef<void(Range)>;
  using OutputGradients = detail::OutputGradients<Dev>;

  /// Cuts the model and allocates this rank's part only. Collective over the whole mesh. `example` is any
  /// micro-batch: its shapes give the costs.
  PipelineParallel(Dev& dev, Model<Dev> model, Mesh<Dev>& mesh, PipelineOptions options,
                   const MicroBatch<Dev>& example, ParameterStoreOptions store = {})
      : options_(std::move(options)),
        store_options_(store),
        replica_{mesh.data().rank(), mesh.data().size(), mesh.shape().context},
        tensor_(mesh.tensor()),
        context_(mesh.context()),
        forward_(detail::both_ways(mesh.pipeline(), options_.schedule.v_shaped())),
        backward_(detail::both_ways(mesh.pipeline_backward(), options_.schedule.v_shaped())),
        stages_(mesh.shape().pipeline),
        stage_(mesh.pipeline_index()) {
    store_options_.context_groups = detail::context_groups_of(store, context_.size());
    const auto layers = static_cast<int>(model.layers.size());
    check(options_.chunks >= 1 && options_.chunks <= layers, "pipeline: ", options_.chunks,
          " chunks per rank for ", layers,
          " layers; every chunk needs at least one: choose fewer chunks");
    const int parts = stages_ * options_.chunks;
    if (options_.costs.empty()) {
      // Rank 0 decides where to cut; measuring needs its tensor and its context group.
      const bool first = mesh.data_index() == 0 && mesh.pipeline_index() == 0;
      if (options_.measure_costs && first && parts > 1 && store_options_.context_groups < 2)
        options_.costs = detail::measured_costs(
            dev, model, detail::context_share(dev, example, context_), store);
      else options_.costs = detail::computed_costs(model, example);
    }
    check(options_.costs.size() == model.layers.size(), "pipeline: ", options_.costs.size(),
          " costs were given for ", layers, " layers");
    auto cuts = detail::agree_on_cuts(dev, mesh.world(), options_.costs, parts);
    layers_ = {std::move(model), std::move(cuts),
               detail::Wiring{stages_, options_.chunks, options_.schedule.v_shaped()}, stage_};
    (void)proven(1, detail::Pass::training);  // refuses a wrong combination of schedule and chunks
    keep_own_part(dev);
  }

  [[nodiscard]] std::vector<std::string> term_names() const { return layers_.loss().term_names(); }
  [[nodiscard]] ParameterStore<Dev>& store() { return store_; }
  /// The range of ParameterState::index over all stages.
  [[nodiscard]] detail::ParameterCount parameters_in_model() const { return parameters_in_model_; }
  /// First layer of each part and the end.
  [[nodiscard]] const std::vector<std::int64_t>& cuts() const { return layers_.cuts(); }
  [[nodiscard]] const PipelineOptions& options() const { return options_; }

  /// How gradients of this stage's output for a micro-batch come back from the next stage; nothing if none do. For one
  /// chunk.
  [[nodiscard]] std::optional<detail::StageOutput<Dev>> output(const MicroBatch<Dev>& of) {
    const int next = layers_.part(0) + 1;
    if (stages_ == 1 || layers_.holds_loss(next - 1) || !layers_.returns_gradient(next))
      return std::nullopt;
    return detail::StageOutput<Dev>{layers_.input_shape(next, of), backward_[0], stage_ + 1};
  }
  /// From now on a step's backward passes get the gradient of this stage's output from there.
  void take_gradients_from(std::unique_ptr<OutputGradients> source) {
    output_gradients_ = std::move(source);
  }

  /// replicas: of DataParallel, as in all of these.
  Tensor<Dev> forward_backward(
      Dev& dev, const Step<Dev>& step, Replicas<Dev>* replicas = nullptr,
      Ready ready = [](Range) {}) {
    const auto micro_batches = static_cast<int>(step.batches.size());
    const int all = rounds(step);
    auto run = start(dev, step, StepContext::Mode::train, replicas);
    expect_contributions(all, run);
    if (all == 0) layers_.for_each([&](int at) { complete(dev, at, run, ready); });
    const auto& actions = proven(all, detail::Pass::training)[detail::as_size(stage_)];
    for (const auto& action : actions) {
      run.next = &action == &actions.back() ? nullptr : &action + 1;
      if (action.micro_batch >= micro_batches) {
        only_move_weights(dev, action, run, ready);
        continue;
      }
      switch (action.kind) {
        case Action::Kind::forward: forward(dev, action, run); break;
        case Action::Kind::backward: backward(dev, action, run, ready); break;
        case Action::Kind::backward_input: backward_input(dev, action, run); break;
        case Action::Kind::backward_weight: backward_weight(dev, action, run, ready); break;
      }
    }
    if (output_gradients_) output_gradients_->end_step(dev);
    tied_.reduce(dev, store_, ready);
    return std::move(run.losses);
  }

  void replay(Dev& dev, const Step<Dev>& step, Replicas<Dev>* replicas = nullptr) {
    (void)forward_backward(dev, step, replicas);
  }
  /// Forward only, as predict(). Replicas may have unequal numbers of micro-batches: nothing crosses the data axis.
  Tensor<Dev> evaluate(Dev& dev, const Step<Dev>& step, Replicas<Dev>* replicas = nullptr) {
    return std::move(forward_only(dev, step, replicas, false).losses);
  }
  [[nodiscard]] std::vector<Tensor<Dev>> predict(Dev& dev, const Step<Dev>& step,
                                                 Replicas<Dev>* replicas = nullptr) {
    return std::move(forward_only(dev, step, replicas, true).predictions);
  }

 private:
  using Execution = detail::Execution<Dev>;

  [[nodiscard]] Execution forward_only(Dev& dev, const Step<Dev>& step, Replicas<Dev>* replicas,
                                       bool predicts) {
    auto run = start(dev, step, StepContext::Mode::eval, replicas, predicts);
    const auto micro_batches = static_cast<int>(step.batches.size());
    const auto& actions = proven(rounds(step), detail::Pass::evaluation)[detail::as_size(stage_)];
    for (const auto& action : actions) {
      run.next = &action == &actions.back() ? nullptr : &action + 1;
      if (action.micro_batch >= micro_batches) {
        only_move_weights(dev, action, run, [](Range) {});
        continue;
      }
      forward(dev, action, run);
      run.in_flight.erase({action.chunk, action.micro_batch});
    }
    return run;
  }

  void keep_own_part(Dev& dev) {
    const auto by_stage = layers_.parameters_by_stage();
    std::map<std::pair<std::string, int>, const ParameterState<Dev>*> named;
    for (const auto& list : by_stage)
      for (const auto& parameter : list) {
        const auto& spec = parameter->spec;
        parameters_in_model_ = {std::max(parameters_in_model_.parameters, parameter->index + 1),
                                std::max(parameters_in_model_.groups, spec.groups)};
        const auto [at, fresh] = named.emplace(std::pair(spec.name, spec.group), parameter.get());
        check(fresh || at->second == parameter.get(), "the model has two parameters of the name ",
              spec.name);
      }
    store_options_.tensor_groups = parameters_in_model_.groups;
    tied_ = detail::TiedParameters<Dev>(forward_[0], by_stage);
    const auto& own = by_stage[static_cast<std::size_t>(stage_)];
    // Tied parameters are ready last, so they come first in the store: reducers start at its end.
    ParameterList<Dev> in_order;
    for (const bool tied : {true, false})
      for (const auto& parameter : own)
        if (tied_.contains(*parameter) == tied) in_order.push_back(parameter);
    store_ = ParameterStore<Dev>(dev, in_order, store_options_, replica_);
  }

  /// The number of micro-batches in the schedule. Replicas that shard weights all use the same number, so that they
  /// issue the same collectives; a replica with fewer computes nothing in the rest.
  [[nodiscard]] int rounds(const Step<Dev>& step) const {
    const auto own = std::ssize(step.batches);
    if (store_options_.sharding.stage != ZeroStage::weights) return static_cast<int>(own);
    return static_cast<int>(std::max(own, replica_.share_of(step.micro_batches)));
  }
  /// With ZeRO a layer's weights are there between the two. After an exception they stay: a failing rank must not wait
  /// for others.
  void gather(Dev& dev, const Execution& run, int at) const {
    if (run.replicas != nullptr) run.replicas->gather(dev, layers_.parameters_of(at));
  }
  void free(Dev& dev, const Execution& run, int at) const {
    if (run.replicas != nullptr) run.replicas->free(dev, layers_.parameters_of(at));
  }
  void only_move_weights(Dev& dev, const Action& action, Execution& run, Ready ready) {
    using Kind = Action::Kind;
    const int part = layers_.part(action.chunk);
    const auto move = [&](int at) {
      gather(dev, run, at);
      free(dev, run, at);
    };
    if (action.kind == Kind::forward) {
      for (int at = layers_.first(part); at < layers_.first(part + 1); ++at) move(at);
      if (layers_.holds_loss(part)) move(layers_.layer_of_loss());
      return;
    }
    layers_.for_each_of(action.chunk, [&](int at) {
      if (action.kind != Kind::backward_weight) move(at);
      if (action.kind != Kind::backward_input) complete(dev, at, run, ready);
    });
  }

  /// The actions of all stages for this number of micro-batches, checked once.
  const StageLists& proven(int micro_batches, detail::Pass pass) {
    auto& lists = proven_[{micro_batches, pass}];
    if (!lists.empty()) return lists;
    const bool v = options_.schedule.v_shaped();
    auto made = all_stages(
        pass == detail::Pass::training ? options_.schedule : AnySchedule(detail::ForwardOnly{v}),
        stages_, micro_batches, options_.chunks);
    (void)check_schedule(made, options_.chunks, micro_batches, forward_[0].send_capacity(), pass);
    return lists = std::move(made);
  }

  Execution start(Dev& dev, const Step<Dev>& step, StepContext::Mode mode, Replicas<Dev>* replicas,
                  bool predicts = false) const {
    detail::check_has_replicas(store_, replicas);
    const auto terms = std::ssize(term_names());
    Execution run{};
    run.step = step;
    run.predicts = predicts;
    const detail::ContextCut cut{store_options_.context_groups, store_options_.tensor_groups};
    if (!predicts && (context_.size() > 1 || cut.groups > 1)) {
      for (const auto& whole : step.batches)
        run.shares.push_back(detail::context_share(dev, whole, context_, cut));
      run.step.batches = run.shares;
    }
    run.context = step.context;
    run.context.mode = mode;
    run.replicas = replicas;
    run.losses =
        Tensor<Dev>::zeros(dev, DType::f64, {std::ssize(step.batches), terms, loss_fields});
    if (mode == StepContext::Mode::eval) return run;
    const auto counts = detail::device_counts(dev, step, term_names());
    const auto plain = step.state ? Tensor<Dev>() : make_step_state(dev, StepState{});
    run.scales = Tensor<Dev>(dev, DType::f64, {terms});
    detail::objective_scales(dev, counts.view(), step.state ? step.state : plain.view(),
                             run.scales.mut());
    return run;
  }

  [[nodiscard]] static const MicroBatch<Dev>& batch(const Execution& run, const Action& action) {
    return run.step.batches[static_cast<std::size_t>(action.micro_batch)];
  }
  /// Origin of an action's input.
  struct Source {
    int from;        // the part that made it; -1: none
    Comm<Dev>* way;  // null: that part is here
    int stage;
    Shape shape;
  };
  [[nodiscard]] Source source_of(const Action& action, const Execution& run) {
    const bool forward = action.kind == Action::Kind::forward;
    const int from = output_gradients_ && !forward ? -1 : layers_.source_of(action);
    if (from < 0 || layers_.is_here(from)) return {from, nullptr, stage_, {}};
    const int later = std::max(layers_.part(action.chunk), from);
    return {from, &(forward ? forward_ : backward_)[layers_.goes_back(action.chunk)],
            layers_.stage_of(from), layers_.input_shape(later, batch(run, action))};
  }
  /// Empty where there is none. What the next action begins with may come from now on.
  [[nodiscard]] Tensor<Dev> take(Dev& dev, const Action& action, Execution& run) {
    Tensor<Dev> x;
    if (const auto [from, way, stage, shape] = source_of(action, run); way != nullptr) {
      x = Tensor<Dev>(dev, store_options_.compute, shape);
      way->recv(dev, x.mut(), stage);
    } else if (from >= 0) {
      x = std::move(
          run.handed_over.extract({layers_.part(action.chunk), action.micro_batch}).mapped());
    }
    if (run.next == nullptr || run.next->micro_batch >= std::ssize(run.step.batches)) return x;
    if (const auto [from, way, stage, shape] = source_of(*run.next, run); way != nullptr)
      way->expect(dev, store_options_.compute, shape, stage);
    return x;
  }
  void hand_over(Dev& dev, const Action& action, Execution& run, int to,
                 std::array<Comm<Dev>, 2>& ways, Tensor<Dev> x) {
    if (layers_.is_here(to))
      run.handed_over.emplace(std::pair{to, action.micro_batch}, std::move(x));
    else ways[layers_.goes_back(action.chunk)].send(dev, std::move(x), layers_.stage_of(to));
  }

  void forward(Dev& dev, const Action& action, Execution& run) {
    const int part = layers_.part(action.chunk);
    const auto& of = batch(run, action);
    auto& state = run.in_flight.try_emplace({action.chunk, action.micro_batch}, run.context, of)
                      .first->second;
    const auto scope = dev.scope("forward", action.micro_batch);
    auto x = take(dev, action, run);
    if (part == 0) x = of.input.share();
    auto forgets = state.tape.nested(false, false);
    for (int at = layers_.first(part); at < layers_.first(part + 1); ++at) {
      gather(dev, run, at);
      auto& tape = at < layers_.first_trained() ? forgets : state.tape;
      x = layers_.forward(dev, at, std::move(x), tape);
      free(dev, run, at);
    }
    if (layers_.holds_loss(part)) {
      gather(dev, run, layers_.layer_of_loss());
      if (run.predicts) {
        run.predictions.push_back(layers_.loss().predict(dev, std::move(x), state.tape));
      } else {
        const auto row = run.losses.mut().slice(action.micro_batch, action.micro_batch + 1);
        layers_.loss().forward(dev, std::move(x), state.tape,
                               row.as({row.shape()[1], loss_fields}));
      }
      free(dev, run, layers_.layer_of_loss());
    } else {
      if (output_gradients_ && run.context.mode == StepContext::Mode::train)
        output_gradients_->sent(action.micro_batch, x);
      hand_over(dev, action, run, part + 1, forward_, std::move(x));
    }
  }

  /// Input gradients of one micro-batch in one chunk. Calls after(layer) when a layer is done.
  void backward_pass(Dev& dev, const Action& action, Execution& run,
                     detail::MicroBatchState<Dev>& state, FunctionRef<void(int)> after) {
    const auto scope = dev.scope("backward", action.micro_batch);
    const int part = layers_.part(action.chunk);
    auto dy = take(dev, action, run);
    if (layers_.holds_loss(part)) {
      gather(dev, run, layers_.layer_of_loss());
      dy = layers_.loss().backward(dev, run.scales.view(), state.tape);
      after(layers_.layer_of_loss());
      free(dev, run, layers_.layer_of_loss());
    } else if (output_gradients_) {
      dy = output_gradients_->gradient(dev, action.micro_batch);
    }
    for (int at = layers_.first(part + 1); at-- > layers_.first(part);) {
      gather(dev, run, at);
      if (at >= layers_.first_trained()) dy = layers_[at].backward(dev, std::move(dy), state.tape);
      after(at);
      free(dev, run, at);
    }
    if (layers_.returns_gradient(part))
      hand_over(dev, action, run, part - 1, backward_, std::move(dy));
  }

  void backward(Dev& dev, const Action& action, Execution& run, Ready ready) {
    auto state = run.in_flight.extract({action.chunk, action.micro_batch});
    backward_pass(dev, action, run, state.mapped(),
                  [&](int done) { complete(dev, done, run, ready); });
  }
  void backward_input(Dev& dev, const Action& action, Execution& run) {
    auto& state = run.in_flight.at({action.chunk, action.micro_batch});
    state.tape.defer_to(&state.deferred);
    backward_pass(dev, action, run, state, [](int) {});
  }
  void backward_weight(Dev& dev, const Action& action, Execution& run, Ready ready) {
    const auto scope = dev.scope("weight gradients", action.micro_batch);
    (void)take(dev, action, run);
    auto state = run.in_flight.extract({action.chunk, action.micro_batch});
    for (auto& work : state.mapped().deferred) work(dev);
    layers_.for_each_of(action.chunk, [&](int at) { complete(dev, at, run, ready); });
  }

  void expect_contributions(int micro_batches, Execution& run) {
    run.layer_runs_left.assign(static_cast<std::size_t>(layers_.layer_of_loss()) + 1,
                               micro_batches);
    run.writers_left.clear();
    layers_.for_each([&](int at) {
      for (const auto& parameter : layers_.parameters_of(at)) ++run.writers_left[parameter.get()];
    });
  }
  /// Counts a finished micro-batch of a layer. A range is ready after the last one of every layer that writes to it.
  void complete(Dev& dev, int at, Execution& run, Ready ready) {
    if (run.replicas != nullptr) run.replicas->accumulated(dev, layers_.parameters_of(at));
    if (--run.layer_runs_left[static_cast<std::size_t>(at)] > 0) return;
    for (const auto& parameter : layers_.parameters_of(at)) {
      if (--run.writers_left[parameter.get()] > 0 || tied_.contains(*parameter) ||
          parameter->spec.frozen)
        continue;
      detail::sum_shares(dev, store_, *parameter, tensor_);
      ready(parameter->range);
    }
  }

  PipelineOptions options_;
  ParameterStoreOptions store_options_;
  detail::ReplicaOf replica_;
  Comm<Dev> tensor_, context_;
  std::array<Comm<Dev>, 2> forward_, backward_;  // [1]: for chunks that go back
  int stages_, stage_;
  detail::StageLayers<Dev> layers_;
  std::map<std::pair<int, detail::Pass>, StageLists> proven_;
  std::unique_ptr<OutputGradients> output_gradients_;  // null: the next stage sends them
  detail::TiedParameters<Dev> tied_;
  ParameterStore<Dev> store_;
  detail::ParameterCount parameters_in_model_{0};
};

}  // namespace dhp
