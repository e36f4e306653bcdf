// TrainingRun: the front door. One object is a training run in any layout of ranks. To use other parts than its own, put
// them together as its constructor does.
#pragma once

#include <dhp/data/loader.hpp>
#include <dhp/optim/optimizer_choice.hpp>
#include <dhp/parallel/data.hpp>
#include <dhp/parallel/pipeline.hpp>
#include <dhp/train/trainer.hpp>

#include <functional>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

namespace dhp {

/// Reducer and Optimizer: variants of what can be chosen. A program compiles all that they name.
template <class Reducer, class Optimizer>
struct TrainingOptionsOf {
  MeshShape layout{};
  StoreOptions store{};  ///< precision, order-free sums, seed, sharding
  PipelineOptions pipeline{};
  Reducer reducer = Bucketed{};  ///< not asked where store.sharding is
  Optimizer optimizer = AdamWOptions{};
  TrainerOptions trainer{};  ///< learning rate, clipping, loss scale

  /// To options with more to choose from.
  template <class R, class O>
  operator TrainingOptionsOf<R, O>() const {
    return {layout,
            store,
            pipeline,
            std::visit([](const auto& chosen) { return R(chosen); }, reducer),
            std::visit([](const auto& chosen) { return O(chosen); }, optimizer),
            trainer};
  }
};
/// What most programs choose from.
using TrainingOptions =
    TrainingOptionsOf<std::variant<Bucketed, Plain>, std::variant<SgdOptions, AdamWOptions>>;
/// With every reducer and optimizer of dhp.
using AllTrainingOptions = TrainingOptionsOf<ReducerChoice, OptimizerChoice>;

template <class Dev>
class TrainingRun {
 public:
  using Describe = std::type_identity_t<std::function<Model<Dev>(ModelBuilder<Dev>&)>>;

  /// Of an optimizer of your own, which derives from Optimizer<Dev>.
  using MakeOptimizer = std::type_identity_t<std::function<std::unique_ptr<Optimizer<Dev>>(
      Dev&, ParameterStore<Dev>&, const Norms<Dev>&)>>;

  /// Collective over the world. describe(ModelBuilder<Dev>&) returns the whole Model<Dev>; a rank keeps its part.
  /// example: any micro-batch; its shapes give the costs that stages are cut by. own: used
  /// instead of options.optimizer.
  template <class Reducer = decltype(TrainingOptions::reducer),
            class Choice = decltype(TrainingOptions::optimizer)>
  TrainingRun(Dev& dev, Comm<Dev> world, const TrainingOptionsOf<Reducer, Choice>& options,
              const Describe& describe, const MicroBatch<Dev>& example,
              const MakeOptimizer& own = {})
      : TrainingRun(
            dev, std::move(world), options.layout, options.store, options.pipeline, options.trainer,
            [&](Dev&, ParameterStore<Dev>& store, Comm<Dev> group) {
              return make_reducer(dev, store, std::move(group), options.reducer);
            },
            [&](const Norms<Dev>& norms) {
              return own ? own(dev, store(), norms)
                         : make_optimizer(dev, store(), norms, options.optimizer);
            },
            describe, example) {}
  ~TrainingRun();
  TrainingRun(const TrainingRun&) = delete;
  TrainingRun& operator=(const TrainingRun&) = delete;

  /// One step; `all`: the micro-batches of all replicas.
  StepReport step(std::span<const MicroBatch<Dev>> all) { return step(mine_of(all)); }
  /// One step; `mine`: from a loader of this replica.
  StepReport step(const StepBatches<Dev>& mine);

  /// The terms over a held-out set; the same in any layout.
  GlobalLoss evaluate(std::span<const MicroBatch<Dev>> all) { return evaluate(mine_of(all)); }
  GlobalLoss evaluate(const StepBatches<Dev>& mine);
  /// Over a whole pass of a loader of this replica.
  template <class L>
    requires requires(L& loader) { loader.finished(); }
  GlobalLoss evaluate(L& loader) {
    GlobalLoss loss{.terms = std::vector<LossTerm>(term_names().size())};
    while (!loader.finished()) loss += evaluate(loader.next());
    return loss;
  }

  /// What the model says of each micro-batch, as Trainer::predict: all of it on rank 0, in the order given.
  [[nodiscard]] std::vector<HostArray> predict(std::span<const MicroBatch<Dev>> all) {
    return predict(mine_of(all));
  }
  [[nodiscard]] std::vector<HostArray> predict(const StepBatches<Dev>& mine);

  /// Fills in this run's seed and this replica.
  [[nodiscard]] LoaderOptions for_this_replica(LoaderOptions options) {
    options.seed = seed_;
    options.replica = mesh_.data().rank();
    options.replicas = mesh_.data().size();
    return options;
  }
  /// A loader of this replica's micro-batches.
  template <class B>
  [[nodiscard]] Loader<Dev, B> loader(B batcher, const LoaderOptions& options = {}) {
    return {dev_, std::move(batcher), for_this_replica(options)};
  }

  [[nodiscard]] Mesh<Dev>& mesh() { return mesh_; }
  [[nodiscard]] ParameterStore<Dev>& store() { return stage_.store(); }
  [[nodiscard]] Optimizer<Dev>& optimizer() { return *optimizer_; }
  /// To start a step before the previous one is finished, and to resume.
  [[nodiscard]] auto& trainer() { return trainer_; }
  [[nodiscard]] std::vector<std::string> term_names() const { return stage_.term_names(); }

 private:
  using Stage = PipelineParallel<Dev>;
  using Replicas = DataParallel<Dev, Stage, MakeReducer<Dev>>;

  TrainingRun(Dev& dev, Comm<Dev> world, const MeshShape& layout, const StoreOptions& store,
              const PipelineOptions& pipeline, const TrainerOptions& trainer,
              MakeReducer<Dev> reducer,
              FunctionRef<std::unique_ptr<Optimizer<Dev>>(const Norms<Dev>&)> optimizer,
              const Describe& describe, const MicroBatch<Dev>& example);

  [[nodiscard]] StepBatches<Dev> mine_of(std::span<const MicroBatch<Dev>> all) {
    return assigned(all, mesh_.data().rank(), mesh_.data().size());
  }

  std::uint64_t seed_;
  Dev& dev_;
  Mesh<Dev> mesh_;
  ModelBuilder<Dev> builder_;
  Stage stage_;
  Replicas replicas_;
  Norms<Dev> norms_;
  std::unique_ptr<Optimizer<Dev>> optimizer_;
  Trainer<Dev, Replicas> trainer_;
};

// Outside the class, so that dhp::cpu_compiled has them and all that they call.
template <class Dev>
TrainingRun<Dev>::TrainingRun(
    Dev& dev, Comm<Dev> world, const MeshShape& layout, const StoreOptions& store,
    const PipelineOptions& pipeline, const TrainerOptions& trainer, MakeReducer<Dev> reducer,
    FunctionRef<std::unique_ptr<Optimizer<Dev>>(const Norms<Dev>&)> optimizer,
    const Describe& describe, const MicroBatch<Dev>& example)
    : seed_(store.seed),
      dev_(dev),
      mesh_(std::move(world), layout),
      builder_(mesh_),
      stage_(dev, describe(builder_), mesh_, pipeline, example, store),
      replicas_(dev, stage_, mesh_.data(), reducer),
      norms_(mesh_.tensor(), mesh_.pipeline(), stage_.parameters_in_model()),
      optimizer_(optimizer(norms_)),
      trainer_(dev, replicas_, mesh_, *optimizer_, norms_, trainer) {
  builder_.check_adapters();
}
template <class Dev>
TrainingRun<Dev>::~TrainingRun() = default;
template <class Dev>
StepReport TrainingRun<Dev>::step(const StepBatches<Dev>& mine) {
  return trainer_.step(mine);
}
template <class Dev>
GlobalLoss TrainingRun<Dev>::evaluate(const StepBatches<Dev>& mine) {
  return trainer_.evaluate(mine);
}
template <class Dev>
std::vector<HostArray> TrainingRun<Dev>::predict(const StepBatches<Dev>& mine) {
  return trainer_.predict(mine);
}

}  // namespace dhp
