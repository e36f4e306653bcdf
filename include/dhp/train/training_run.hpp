// TrainingRun: the main class for programs. One object is a training run in any layout of ranks, from data to
// checkpoints. To replace a part, assemble the parts yourself, like the constructor.
#pragma once

#include <dhp/data/step_source.hpp>
#include <dhp/optim/optimizer_choice.hpp>
#include <dhp/parallel/data.hpp>
#include <dhp/parallel/pipeline.hpp>
#include <dhp/train/compare_ranks.hpp>
#include <dhp/train/trainer.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace dhp {

/// Reducer and Optimizer are variants of all possible choices; a program compiles every type in them.
template <class Reducer, class Optimizer>
struct TrainingOptionsOf {
  MeshShape layout{};
  ParameterStoreOptions store{};  ///< precision, exact sums, seed, sharding
  PipelineOptions pipeline{};
  Reducer reducer = Bucketed{};  ///< must sum all gradients if store.sharding is set
  Optimizer optimizer = AdamWOptions{};
  TrainerOptions trainer{};  ///< learning rate, clipping, loss scale

  /// Converts to options with more choices.
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
namespace detail {
using DefaultReducers = std::variant<Bucketed, Plain>;
using DefaultOptimizers = std::variant<SgdOptions, AdamWOptions>;
}  // namespace detail
/// The options of most programs.
using TrainingOptions = TrainingOptionsOf<detail::DefaultReducers, detail::DefaultOptimizers>;

template <class Dev>
class RunFiles;

template <class Dev>
class TrainingRun : detail::NonCopyable {
 public:
  using Describe = std::type_identity_t<std::function<Model<Dev>(ModelBuilder<Dev>&)>>;

  /// Makes your own optimizer, derived from Optimizer<Dev>.
  using MakeOptimizer = std::type_identity_t<std::function<std::unique_ptr<Optimizer<Dev>>(
      Dev&, ParameterStore<Dev>&, const Norms<Dev>&)>>;

  /// Collective over the world. describe(ModelBuilder<Dev>&) returns the whole Model<Dev>; a rank keeps its part. data:
  /// the source of steps, such as a Loader, at its start; the run keeps a reference. own: replaces options.optimizer.
  template <class Reducer = detail::DefaultReducers, class Choice = detail::DefaultOptimizers>
  TrainingRun(Dev& dev, Comm<Dev> world, const TrainingOptionsOf<Reducer, Choice>& options,
              const Describe& describe, StepSource<Dev>& data, const MakeOptimizer& own = {})
      : TrainingRun(dev, std::move(world), options, describe, data.example(), own) {
    begin_with(data);
  }
  /// Makes a run whose caller provides the steps. example: any micro-batch; its costs decide where stages are cut.
  template <class Reducer = detail::DefaultReducers, class Choice = detail::DefaultOptimizers>
  TrainingRun(Dev& dev, Comm<Dev> world, const TrainingOptionsOf<Reducer, Choice>& options,
              const Describe& describe, const MicroBatch<Dev>& example,
              const MakeOptimizer& own = {})
      : TrainingRun(
            dev, std::move(world), options.layout, options.store, options.pipeline, options.trainer,
            concat(options.reducer.index(), " ", options.optimizer.index()),
            [&](Dev&, ParameterStore<Dev>& store, Comm<Dev> group) {
              return detail::any_reducer(dev, store, std::move(group), options.reducer);
            },
            [&](const Norms<Dev>& norms) {
              auto result = own ? own(dev, store(), norms)
                                : make_optimizer(dev, store(), norms, options.optimizer);
              check(result != nullptr, "the function for a run's own optimizer has returned none");
              return result;
            },
            describe, example) {}
  ~TrainingRun();

  /// Runs the next step of the data. All step() functions are collective and give all ranks the same report.
  StepReport step() { return finish(start()); }
  /// Runs one step; `all`: the micro-batches of all replicas.
  StepReport step(std::span<const MicroBatch<Dev>> all) { return step(mine_of(all)); }
  /// Runs one step; `mine`: the micro-batches of this replica.
  StepReport step(const StepBatches<Dev>& mine) { return finish(start(mine)); }
  /// Issues a step without waiting for it. Tickets must be finished in the order of their steps.
  [[nodiscard]] StepTicket<Dev> start() {
    ask_whether_to_stop();
    return trainer_.start(data().next());
  }
  [[nodiscard]] StepTicket<Dev> start(const StepBatches<Dev>& mine);
  /// Waits for a step and returns its report.
  StepReport finish(const StepTicket<Dev>& ticket);

  /// Sets a function that is called with the report of each finished step. It may set another one.
  void after_step(std::function<void(const StepReport&)> call) {
    after_step_ = std::make_shared<std::function<void(const StepReport&)>>(std::move(call));
  }
  /// Each rank calls `asked`, such as a StopSignal, before each step of training and of other passes. If it returns
  /// true on any rank, all ranks stop training after that step, or leave the pass.
  void stop_when(std::function<bool()> asked) { stop_when_ = std::move(asked); }
  /// Returns whether a rank was asked to stop, or whether the data have ended.
  [[nodiscard]] bool stopped() const { return stopped_ || (data_ != nullptr && data_->finished()); }
  /// Returns the number of started steps, including those before a loaded checkpoint.
  [[nodiscard]] std::int64_t steps() const { return trainer_.steps_started(); }
  /// Returns the epoch of the next step, counted from 0.
  [[nodiscard]] std::int64_t epoch() { return data().epoch(); }

  /// Returns the loss over a held-out set, the same in any layout.
  GlobalLoss evaluate(std::span<const MicroBatch<Dev>> all) { return evaluate(mine_of(all)); }
  GlobalLoss evaluate(const StepBatches<Dev>& mine);
  /// Evaluates all steps of `pass`, such as a Loader of evaluation_pass(). If `pass` is the training data, training
  /// later continues where it was. Returns nothing if the run stops before the end of the pass: all ranks then leave
  /// the pass between the same two steps, and stopped() returns true.
  std::optional<GlobalLoss> evaluate(StepSource<Dev>& pass);

  /// Predicts like Trainer::predict. Rank 0 gets one array per micro-batch, in the given order; other ranks get none.
  [[nodiscard]] std::vector<HostArray> predict(std::span<const MicroBatch<Dev>> all) {
    return predict(mine_of(all));
  }
  [[nodiscard]] std::vector<HostArray> predict(const StepBatches<Dev>& mine);
  /// Predicts all of `pass`, in the order of the dataset if it is a Loader that does not shuffle. Returns nothing if
  /// the run stops before the end of the pass, like evaluate().
  [[nodiscard]] std::optional<std::vector<HostArray>> predict(StepSource<Dev>& pass);

  /// The next four functions need <dhp/checkpoint.hpp>, which needs nlohmann/json; they are collective.
  /// Resumes after the newest checkpoint of a folder, saved in any layout. Returns false if the folder has none, as at
  /// a first start. files().load() also returns remarks, such as damaged checkpoints that were skipped, or another
  /// seed. The first save claims the folder for this run; files().hold() claims it earlier.
  template <class D = Dev>
  bool resume(const std::string& folder) {
    return files<D>().resume(folder);
  }
  /// Saves to FOLDER/step-N. Throws SaveFailed on all ranks if the folder has checkpoints of a run that this run does
  /// not continue, or if a rank cannot write.
  template <class D = Dev>
  void save(const std::string& folder) {
    files<D>().save(folder);
  }
  /// Saves while training continues. The next save and the end of the run wait for it. The next save or files().wait()
  /// throws its failure. A program that changes weights itself first calls files().wait().
  template <class D = Dev>
  void save_in_background(const std::string& folder) {
    files<D>().save_in_background(folder);
  }
  /// Returns the object for all other work with checkpoints.
  template <class D = Dev>
  [[nodiscard]] RunFiles<D>& files() {
    static_assert(
        requires { sizeof(RunFiles<D>); }, "to save and to resume, #include <dhp/checkpoint.hpp>");
    if (!files_) files_ = std::make_shared<RunFiles<D>>(*this);
    return *files_;
  }
  /// Continues after `state`, whose tensors the caller has already put into the run: sets the next step and its data.
  void resume_after(const RunState& state);

  [[nodiscard]] DataReader reader() {
    return {.seed = stage_.store().options().seed,
            .replica = mesh_.data_index(),
            .replicas = mesh_.shape().data,
            .reads_input = mesh_.pipeline_index() == 0};
  }
  /// Describes the run's own data, as StepSource::in_common() does; empty if the caller gives the micro-batches.
  [[nodiscard]] std::string data_in_common() const {
    return data_ == nullptr ? "" : data_->in_common();
  }
  /// Makes a source deliver this replica's part, in the order given by this run's seed.
  void read(StepSource<Dev>& source) { source.read_as(reader()); }

  [[nodiscard]] Dev& device() { return dev_; }
  [[nodiscard]] Mesh<Dev>& mesh() { return mesh_; }
  [[nodiscard]] PipelineParallel<Dev>& stage() { return stage_; }
  /// Returns the parameters; call it after each step whose weights you use. With ZeRO 1 and 2, replicas gather weights
  /// after a step, and this waits until they are complete.
  [[nodiscard]] ParameterStore<Dev>& store() {
    if (stage_.store().is_sharded()) replicas()->synchronize(dev_);
    return stage_.store();
  }
  [[nodiscard]] Replicas<Dev>* replicas() { return replicas_.replicas(); }
  [[nodiscard]] Optimizer<Dev>& optimizer() { return *optimizer_; }
  [[nodiscard]] auto& trainer() { return trainer_; }
  [[nodiscard]] std::vector<std::string> term_names() const { return stage_.term_names(); }

 private:
  TrainingRun(Dev& dev, Comm<Dev> world, const MeshShape& layout,
              const ParameterStoreOptions& store, const PipelineOptions& pipeline,
              const TrainerOptions& trainer, const std::string& choices,
              detail::MakeReducer<Dev> reducer,
              FunctionRef<std::unique_ptr<Optimizer<Dev>>(const Norms<Dev>&)> optimizer,
              const Describe& describe, const MicroBatch<Dev>& example);

  [[nodiscard]] StepBatches<Dev> mine_of(std::span<const MicroBatch<Dev>> all) {
    return assigned(all, mesh_.data_index(), mesh_.shape().data);
  }
  [[nodiscard]] StepSource<Dev>& data() {
    check(data_ != nullptr, "this training run has no data of its own: give it the micro-batches");
    return *data_;
  }
  void begin_with(StepSource<Dev>& data);
  void ask_whether_to_stop() {
    if (stop_when_ && stop_when_()) trainer_.request_stop();
  }
  /// Calls `call` with each step of the pass. Returns false if all ranks have left it before its end. Collective.
  [[nodiscard]] bool run_pass(StepSource<Dev>& pass,
                              FunctionRef<void(const StepBatches<Dev>&)> call);

  Dev& dev_;
  Mesh<Dev> mesh_;
  ModelBuilder<Dev> builder_;
  PipelineParallel<Dev> stage_;
  DataParallel<Dev, PipelineParallel<Dev>> replicas_;
  Norms<Dev> norms_;
  std::unique_ptr<Optimizer<Dev>> optimizer_;
  Trainer<Dev, DataParallel<Dev, PipelineParallel<Dev>>> trainer_;
  StepSource<Dev>* data_ = nullptr;
  std::shared_ptr<const void> claim_;  // the run's claim on its data
  std::shared_ptr<std::function<void(const StepReport&)>> after_step_;
  std::function<bool()> stop_when_;
  bool stopped_ = false;
  std::shared_ptr<RunFiles<Dev>> files_;  // destroyed first
};

namespace detail {
/// Returns the model. Throws Error if an adapter or a row of the placements fits nothing in it.
template <class Dev>
Model<Dev> checked_model(ModelBuilder<Dev>& builder, const auto& describe) {
  Model<Dev> model = describe(builder);
  builder.check_described();
  return model;
}
}  // namespace detail

// These functions are defined outside the class, so that dhp::cpu_compiled contains them and all that they call.
template <class Dev>
TrainingRun<Dev>::TrainingRun(
    Dev& dev, Comm<Dev> world, const MeshShape& layout, const ParameterStoreOptions& store,
    const PipelineOptions& pipeline, const TrainerOptions& trainer, const std::string& choices,
    detail::MakeReducer<Dev> reducer,
    FunctionRef<std::unique_ptr<Optimizer<Dev>>(const Norms<Dev>&)> optimizer,
    const Describe& describe, const MicroBatch<Dev>& example)
    : dev_(detail::check_alike(dev, world,
                               detail::facts<Dev>(layout, store, pipeline, trainer, choices))),
      mesh_(std::move(world), layout),
      builder_(mesh_, store),
      stage_(dev, detail::checked_model(builder_, describe), mesh_, pipeline, example, store),
      replicas_(dev, stage_, mesh_.data(), reducer),
      norms_(mesh_.tensor(), mesh_.pipeline(), stage_.parameters_in_model(), replicas()),
      optimizer_(optimizer(norms_)),
      trainer_(dev, replicas_, mesh_, *optimizer_, norms_, trainer) {
  builder_.check_listed();
  detail::check_alike(dev_, mesh_.world(),
                      {{"optimizer", concat(optimizer_->name(), " ", optimizer_->settings())},
                       {"list of parameters", concat(builder_.described())}});
}
template <class Dev>
TrainingRun<Dev>::~TrainingRun() = default;
template <class Dev>
void TrainingRun<Dev>::begin_with(StepSource<Dev>& data) {
  claim_ = data.claim();
  check(data.steps_done() == 0, "a training run begins with the first step of its data, but step ",
        data.steps_done(), " was taken: call their start_at({}), or give each run data of its own");
  read(data);
  detail::check_same_data(dev_, mesh_.world(), data);
  data_ = &data;
}
template <class Dev>
StepTicket<Dev> TrainingRun<Dev>::start(const StepBatches<Dev>& mine) {
  ask_whether_to_stop();
  return trainer_.start(mine);
}
template <class Dev>
StepReport TrainingRun<Dev>::finish(const StepTicket<Dev>& ticket) {
  const auto report = trainer_.finish(ticket);
  stopped_ = stopped_ || report.stop_requested;
  if (const auto call = after_step_; call != nullptr && *call) (*call)(report);
  return report;
}
template <class Dev>
bool TrainingRun<Dev>::run_pass(StepSource<Dev>& pass,
                                FunctionRef<void(const StepBatches<Dev>&)> call) {
  check(pass.steps() > 0, "the data of an evaluation have no end; choose one epoch");
  const auto claim = &pass == data_ ? nullptr : pass.claim();
  read(pass);
  detail::check_same_data(dev_, mesh_.world(), pass);
  const auto walk = [&] {
    pass.start_at({});
    while (!pass.finished()) {
      ask_whether_to_stop();
      stopped_ = stopped_ || trainer_.agree_to_stop();
      if (stopped_) return false;
      call(pass.next());
    }
    return true;
  };
  if (&pass != data_) return walk();
  const auto go_back = [&] { pass.start_at(trainer_.position()); };
  try {
    const bool whole = walk();
    go_back();
    return whole;
  } catch (...) {
    go_back();
    throw;
  }
}
template <class Dev>
GlobalLoss TrainingRun<Dev>::evaluate(const StepBatches<Dev>& mine) {
  return trainer_.evaluate(mine);
}
template <class Dev>
std::optional<GlobalLoss> TrainingRun<Dev>::evaluate(StepSource<Dev>& pass) {
  GlobalLoss loss;
  if (!run_pass(pass, [&](const auto& mine) { loss += evaluate(mine); })) return std::nullopt;
  return loss;
}
template <class Dev>
std::vector<HostArray> TrainingRun<Dev>::predict(const StepBatches<Dev>& mine) {
  return trainer_.predict(mine);
}
template <class Dev>
std::optional<std::vector<HostArray>> TrainingRun<Dev>::predict(StepSource<Dev>& pass) {
  std::vector<HostArray> all;
  const bool whole = run_pass(pass, [&](const auto& mine) {
    for (auto& array : predict(mine)) all.push_back(std::move(array));
  });
  if (!whole) return std::nullopt;
  return all;
}
template <class Dev>
void TrainingRun<Dev>::resume_after(const RunState& state) {
  trainer_.resume_after(state);
  if (data_ != nullptr) data_->start_at(trainer_.position());
}

}  // namespace dhp
