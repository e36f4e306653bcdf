// P, the pipeline axis: each rank holds its slice of the layers. It runs a schedule's actions over its micro-batches,
// layer by layer, with its replicas' moves of weights and gradients. With one stage it is serial training, gradient
// accumulation included.
#pragma once

#include <dhp/comm/mesh.hpp>
#include <dhp/nn/context.hpp>
#include <dhp/parallel/execution.hpp>
#include <dhp/parallel/partition.hpp>
#include <dhp/parallel/schedule.hpp>
#include <dhp/parallel/schedule_check.hpp>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>

namespace dhp {

struct PipelineOptions {
  AnySchedule schedule = OneForwardOneBackward{};
  int chunks = 1;  ///< parts of the model per rank; only some schedules allow more than one
  /// Cost of each layer, to balance the parts. Empty: flops on the example batch, or measured seconds.
  std::vector<double> costs{};
  bool measure_costs = false;  ///< measures empty `costs`, except with several context groups
};

template <class Dev>
class PipelineParallel {
 public:
  using Ready = FunctionRef<void(Range)>;
  using OutputGradients = detail::OutputGradients<Dev>;

  /// Cuts the model and allocates this rank's part only. Collective over the whole mesh. `example` is any micro-batch:
  /// its shapes determine the costs.
  PipelineParallel(Dev& dev, Model<Dev> model, Mesh<Dev>& mesh, PipelineOptions options,
                   const MicroBatch<Dev>& example, ParameterStoreOptions store = {})
      : options_(std::move(options)),
        store_options_(store),
        replica_{mesh.data().rank(), mesh.data().size(), mesh.shape().context},
        parts_{
            .tensor = mesh.tensor(),
            .context = mesh.context(),
            .forward = detail::both_ways(mesh.pipeline(), options_.schedule.v_shaped()),
            .backward = detail::both_ways(mesh.pipeline_backward(), options_.schedule.v_shaped())},
        stages_(mesh.shape().pipeline),
        stage_(mesh.pipeline_index()) {
    store_options_.context_groups = detail::context_groups_of(store, parts_.context.size());
    const auto layers = static_cast<int>(model.layers.size());
    check(layers > 0, "the model has no layers; give it some by Model::add");
    check(bool(model.loss), "the model has no loss; give it one by Model::loss");
    check(options_.chunks >= 1 && options_.chunks <= layers,
          "pipeline: ", detail::pluralize(options_.chunks, "chunk"), " per rank for ",
          detail::pluralize(layers, "layer"),
          "; every chunk needs at least one: choose fewer chunks");
    const int parts = stages_ * options_.chunks;
    if (options_.costs.empty()) {
      // Rank 0 decides where to cut. Measuring is collective over its tensor and context groups.
      const bool first = mesh.data_index() == 0 && mesh.pipeline_index() == 0;
      if (options_.measure_costs && first && parts > 1 && store_options_.context_groups < 2)
        options_.costs = detail::measured_costs(
            dev, model, detail::context_share(dev, example, parts_.context), store);
      else options_.costs = detail::computed_costs(model, example);
    }
    check(options_.costs.size() == model.layers.size(), "pipeline: ", options_.costs.size(),
          " costs were given for ", detail::pluralize(layers, "layer"));
    auto cuts = detail::agree_on_cuts(dev, mesh.world(), options_.costs, parts);
    parts_.layers = {std::move(model), std::move(cuts),
                     detail::Wiring{stages_, options_.chunks, options_.schedule.v_shaped()},
                     stage_};
    (void)proven(1, detail::Pass::training);  // throws if schedule and chunks do not fit
    keep_own_part(dev);
    parts_.units = {parts_.store, parts_.layers};
  }

  [[nodiscard]] std::vector<std::string> term_names() const {
    return parts_.layers.loss().term_names();
  }
  [[nodiscard]] ParameterStore<Dev>& store() { return parts_.store; }
  /// The numbers of parameters and of tensor groups, over all stages.
  [[nodiscard]] detail::ParameterCount parameters_in_model() const { return parameters_in_model_; }
  /// First layer of each part, then the number of layers.
  [[nodiscard]] const std::vector<std::int64_t>& cuts() const { return parts_.layers.cuts(); }
  [[nodiscard]] const PipelineOptions& options() const { return options_; }

  /// Returns the shape of this stage's output, and the sender of its gradient; nothing if no gradient comes back. The
  /// stage must have one chunk.
  [[nodiscard]] std::optional<detail::StageOutput<Dev>> output(const MicroBatch<Dev>& of) {
    const int next = parts_.layers.own().back() + 1;
    if (next > parts_.layers.layer_of_loss() || !parts_.layers.returns_gradient(next))
      return std::nullopt;
    return detail::StageOutput<Dev>{parts_.layers.input_shape(next, of), parts_.backward[0],
                                    stage_ + 1};
  }
  /// From the next step on, `source` supplies the gradient of this stage's output.
  void take_gradients_from(std::unique_ptr<OutputGradients> source) {
    parts_.output_gradients = std::move(source);
  }

  /// Runs a training step. replicas: moves sharded weights; null: none are sharded. ready: called per reduce action.
  Tensor<Dev> forward_backward(
      Dev& dev, const Step<Dev>& step, Replicas<Dev>* replicas = nullptr,
      Ready ready = [](Range) {}) {
    if (parts_.output_gradients) parts_.output_gradients->begin_step(dev, step.state);
    detail::Execution<Dev> run(dev, parts_, step, StepContext::Mode::train, replicas);
    run.run(list_of(rounds(step, detail::Pass::training), detail::Pass::training), ready);
    if (parts_.output_gradients) parts_.output_gradients->end_step(dev);
    // Without summands the step would move running statistics towards zero.
    for (const auto& parameter : parts_.store.parameters())
      check(!parameter->spec.buffer || parameter->is_added_to() || step.batches.empty(),
            "the running statistics ", parameter->spec.name, " got no values in a step: their ",
            "layer ran in evaluation mode, as a teacher does; give such layers a TrainingRun of ",
            "their own, and its predictions to this one");
    return std::move(run.losses);
  }

  void replay(Dev& dev, const Step<Dev>& step, Replicas<Dev>* replicas = nullptr) {
    (void)forward_backward(dev, step, replicas);
  }
  /// Runs forward passes only. Replicas may have any numbers of micro-batches, unless they shard weights (ZeRO 3).
  Tensor<Dev> evaluate(Dev& dev, const Step<Dev>& step, Replicas<Dev>* replicas = nullptr) {
    return std::move(forward_only(dev, step, replicas, false).losses);
  }
  [[nodiscard]] std::vector<Tensor<Dev>> predict(Dev& dev, const Step<Dev>& step,
                                                 Replicas<Dev>* replicas = nullptr) {
    return std::move(forward_only(dev, step, replicas, true).predictions);
  }

 private:
  [[nodiscard]] detail::Execution<Dev> forward_only(Dev& dev, const Step<Dev>& step,
                                                    Replicas<Dev>* replicas, bool predicts) {
    detail::Execution<Dev> run(dev, parts_, step, StepContext::Mode::eval, replicas, predicts);
    run.run(list_of(rounds(step, detail::Pass::evaluation), detail::Pass::evaluation),
            [](Range) {});
    return run;
  }

  void keep_own_part(Dev& dev) {
    const auto by_stage = parts_.layers.parameters_by_stage();
    std::map<std::pair<std::string, int>, const ParameterState<Dev>*> named;
    for (const auto& list : by_stage)
      for (const auto& parameter : list) {
        parameter->listed = true;
        const auto& spec = parameter->spec;
        parameters_in_model_ = {std::max(parameters_in_model_.parameters, parameter->index + 1),
                                std::max(parameters_in_model_.groups, spec.groups)};
        const auto [at, fresh] = named.emplace(std::pair(spec.name, spec.group), parameter.get());
        check(fresh || at->second == parameter.get(), "the model has two parameters of the name ",
              spec.name);
        check(fresh || !spec.buffer, "two layers share the running statistics ", spec.name,
              "; give each layer statistics of its own");
      }
    store_options_.tensor_groups = parameters_in_model_.groups;
    parts_.tied = detail::TiedParameters<Dev>(parts_.forward[0], by_stage);
    const auto& own = by_stage[detail::as_size(stage_)];
    // Tied parameters are ready last, so they come first in the store: reducers start at its end.
    ParameterList<Dev> in_order;
    for (const bool tied : {true, false})
      for (const auto& parameter : own)
        if (parameter->tied == tied) in_order.push_back(parameter);
    parts_.store = ParameterStore<Dev>(dev, in_order, store_options_, replica_);
  }

  /// The number of micro-batches in the schedule. It is the same on all replicas that move shards in this pass; a
  /// replica with fewer micro-batches skips the passes of the rest.
  [[nodiscard]] int rounds(const Step<Dev>& step, detail::Pass pass) const {
    const auto own = std::ssize(step.batches), share = replica_.share_of(step.micro_batches);
    const auto moves = pass == detail::Pass::training ? ZeroStage::gradients : ZeroStage::weights;
    check(own <= share || replica_.size == 1 || parts_.store.options().sharding.stage < moves,
          "a replica has ", own, " of ", step.micro_batches, " micro-batches; with ZeRO ",
          static_cast<int>(parts_.store.options().sharding.stage), ", each replica takes at most ",
          share);
    return static_cast<int>(std::max(own, share));
  }

  /// The actions of all stages for this number of micro-batches.
  [[nodiscard]] StageLists proven(int micro_batches, detail::Pass pass) const {
    const bool v = options_.schedule.v_shaped(), trains = pass == detail::Pass::training;
    const int chunks = options_.chunks, capacity = parts_.forward[0].send_capacity();
    auto lists = all_stages(trains ? options_.schedule : AnySchedule(detail::ForwardOnly{v}),
                            stages_, micro_batches, chunks);
    if (trains) (void)check_schedule(lists, chunks, micro_batches, capacity);
    else (void)detail::ScheduleChecker(lists, chunks, micro_batches, capacity, pass).run();
    return lists;
  }
  /// This stage's actions, layer by layer and with moves, checked once.
  const std::vector<Action>& list_of(int micro_batches, detail::Pass pass) {
    const std::pair key(micro_batches, pass);
    if (const auto found = lists_.find(key); found != lists_.end()) return found->second;
    const auto of_parts = proven(micro_batches, pass)[detail::as_size(stage_)];
    const auto& plan = parts_.units.plan();
    auto list = detail::with_moves(detail::by_layers(of_parts, parts_.layers.first_of_chunk()),
                                   plan, micro_batches, pass);
    detail::check_moves(list, plan, micro_batches, pass);
    return lists_[key] = std::move(list);
  }

  PipelineOptions options_;
  ParameterStoreOptions store_options_;
  detail::ReplicaOf replica_;
  detail::StageParts<Dev> parts_;
  int stages_, stage_;
  std::map<std::pair<int, detail::Pass>, std::vector<Action>> lists_;
  detail::ParameterCount parameters_in_model_{0};
};

}  // namespace dhp
