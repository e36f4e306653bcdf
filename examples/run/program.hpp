// Program: one rank's training, from the loader to the last checkpoint.
#pragma once

#include <dhp/comm/rendezvous/address.hpp>
#include <dhp/core/open_file.hpp>
#include <dhp/extra/verify.hpp>

#include "../report/memory_use.hpp"
#include "../report/trace_report.hpp"
#include "../report/transport_report.hpp"
#include "../report/value_trace.hpp"
#include "patience.hpp"
#include "rank_work.hpp"
#include "ranks.hpp"
#include "saved_run.hpp"
#include "stopping.hpp"
#include "warm_up.hpp"

#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace examples {

/// How a run has ended.
enum class RunEnd {
  done,
  stopped,  ///< saved before its last step, as a signal asked
  changes,  ///< its ranks are to change: all have done the same steps
};

/// Questions of a run in one generation to its elastic job.
struct ElasticHooks {
  bool first = true;                    ///< the first generation
  bool has_state = false;               ///< somewhere among the ranks: none is loaded or drawn
  std::function<bool()> change_wanted;  ///< all ranks are to leave after this step
  std::function<bool()>
      job_goes_on;  ///< with other ranks, after all were asked to stop. Collective
  std::function<void()> check_newest;  ///< throws where another generation has begun
};

/// One rank's run; rank 0 alone speaks and writes.
class Program {
 public:
  /// memory: its plan is printed; null: none, as for thread ranks but 0. elastic: null where ranks stay the same.
  Program(Dev& dev, dhp::Comm<Dev> world, const TrainingSetup& setup, MemoryPlanner* memory,
          dhp::Deadlines* deadlines, Stopping& stopping, const ElasticHooks* elastic = nullptr)
      : dev_(dev),
        work_(dev, setup),
        use_(dev),
        memory_(memory),
        elastic_(elastic),
        limit_(memory_limit(dev, setup.options)),
        setup_(setup),
        options_(setup.options),
        deadlines_(deadlines),
        stopping_(stopping),
        batching_(batching_of(setup)),
        total_(options_.total_steps(batching_)),
        report_(options_, world.rank() == 0, total_),
        loader_(dev, setup.train, loader_options()),
        run_(
            dev, observed(dev, warmed(fits(std::move(world))), options_), training_options(),
            [this](dhp::ModelBuilder<Dev>& build) { return described(build); }, loader_),
        patience_(options_.stop_early, options_.patience, run_.trainer().best()),
        saved_(setup, run_, batching_, report_, patience_,
               elastic == nullptr ? nullptr : elastic->check_newest) {
    if (elastic_ != nullptr)
      run_.trainer().set_update_barrier([this] { run_.mesh().world().barrier(); });
    if (values_ && run_.mesh().world().rank() == 0)
      values_file_.emplace(options_.trace_values, O_WRONLY | O_CREAT | O_TRUNC);
    if (options_.resident()) resident_ = batches_of(0);
    run_.stop_when(
        [this] { return stopping_.asked() || (elastic_ != nullptr && elastic_->change_wanted()); });
    if (options_.verify_every > 0)
      dhp::verify_every(run_, options_.verify_every,
                        [this](int ahead) { return batches_of(ahead); });
    if (options_.synthetic_gradients)
      options_.prepare(run_, dhp::example_batch(dev_, setup_.train, options_.micro_batch));
  }

  // For elastic jobs.
  [[nodiscard]] dhp::TrainingRun<Dev>& training() { return run_; }
  /// Whether its weights are those after a step, and not still to be received.
  [[nodiscard]] bool has_state() const { return has_state_; }
  /// Its weights have been written to, and are those after this.
  void resume_after(const dhp::RunState& state, const Measures& last_step) {
    run_.resume_after(state);
    if (auto* replicas = run_.replicas()) replicas->updated(dev_);
    report_.know(last_step);
    has_state_ = true;
  }
  /// After Aborted: its state becomes that after `steps` steps, by the update of the interrupted step or
  /// without it. A save under way is given up. Returns whether a step that had begun is forgotten.
  bool finish_interrupted(std::int64_t steps) {
    saved_.give_up();
    const bool interrupted = run_.trainer().is_interrupted();
    const auto done = run_.trainer().finish_interrupted(steps);
    if (done) report_.step(*done, run_.term_names(), 0, {});
    return interrupted && !done;
  }
  [[nodiscard]] const Measures& last_step() const { return report_.last_step(); }
  /// Whether run() has done anything that could be saved.
  [[nodiscard]] bool has_steps() const { return has_steps_; }
  void say(const std::string& line) { report_.say(line); }

  RunEnd run() {
    check_shares();
    if (!begin()) return RunEnd::done;
    announce();
    TraceReport traced(dev_, run_.mesh().world(), options_.trace);
    if (options_.evaluate_only) {
      evaluate_only();
      return RunEnd::done;
    }
    train(traced);
    return conclude(traced);
  }

 private:
  /// Takes the state from what was saved, unless it came from other ranks. Returns whether something is left to do.
  [[nodiscard]] bool begin() {
    const TimeParts::In loading(work_.parts(), Part::saving);
    saved_.hold(elastic_ != nullptr && !elastic_->first);
    if (!has_state_ && !saved_.begin(total_)) return false;
    has_state_ = true;
    steps_before_ = run_.steps();
    if (!options_.evaluate_only) stopping_.begin_steps();
    return true;
  }
  /// Collective.
  void announce() {
    report_.start(steps_before_);
    report_.say("layout ", to_text(run_.mesh()), ", schedule ", options_.pipeline.schedule.name(),
                ", ", precision_name(options_.precision), ", ", batching_.dataset_size(),
                " training samples, ", total_, " steps of ", options_.global_batch);
    for (const auto& doubt : options_.doubts(total_)) report_.say("warning: ", doubt);
    if (setup_.shortfalls)
      for (const auto& lacking : setup_.shortfalls(dev_, setup_.options))
        report_.say("warning: ", lacking);
    if (memory_ != nullptr)
      for (const auto& line : memory_->lines(limit_)) report_.say(line);
    report_redundancy();
    if (!goes_on_within_job()) report_transports();
  }
  void evaluate_only() {
    dhp::check(setup_.held_out.size() > 0,
               "--evaluate-only: no samples are held out, and there is no test set");
    evaluate("as loaded");
    report_.end_of_steps();
  }

  void train(TraceReport<Dev>& traced) {
    if (!goes_on_within_job()) evaluate("at the start");
    else if (evaluates_after(steps_before_)) evaluate(dhp::concat("after step ", steps_before_));
    // A step's numbers are read when the next one has been started: the device never waits for them.
    std::optional<dhp::StepTicket<Dev>> under_way;
    const auto finish = [&] {
      if (under_way) finish_step(*under_way, traced);
      under_way.reset();
    };
    report_.restart_clock();
    work_.parts().enter(Part::compute);
    for (auto section = dhp::Section::first_step;
         run_.steps() < total_ && !stopped() && !patience_.is_over();
         section = dhp::Section::step) {
      enter(section);
      auto ticket = start_step(finish);
      finish();
      has_steps_ = true;
      under_way = std::move(ticket);
      traced.step_started();
      const auto step = run_.steps();
      write_values(step);
      const bool last = step == total_;
      const bool evaluates = evaluates_after(step);
      const bool saves = options_.save_every > 0 && step % options_.save_every == 0;
      // On the Cpu the step has been done by now.
      if (!on_gpu || last || evaluates || saves) finish();
      if (step % Stragglers::period == 0)
        for (const auto& slow : work_.slow_ranks(run_.mesh().world()))
          report_.say("warning: ", slow);
      if (evaluates && !last) evaluate(dhp::concat("after step ", step));
      if (saves && !last) {
        const TimeParts::In saving(work_.parts(), Part::saving);
        enter(dhp::Section::saving);
        saved_.save();
      }
      if (evaluates || saves) report_.restart_clock();
    }
    finish();
  }
  /// finish_before: of the step before, which is whole even if this one is aborted.
  [[nodiscard]] dhp::StepTicket<Dev> start_step(auto finish_before) {
    if (values_)
      values_->takes(options_.stop_after == 0 || options_.stop_after == run_.steps() + 1);
    auto batches = next_batches();
    try {
      return run_.start(batches);
    } catch (const dhp::Aborted&) {
      finish_before();
      throw;
    }
  }
  void finish_step(const dhp::StepTicket<Dev>& under_way, TraceReport<Dev>& traced) {
    const auto done = run_.finish(under_way);
    replayed_steps_ += done.replayed ? 1 : 0;
    traced.step_done();
    const auto& mine = under_way.mine;
    work_.step_done(mine);
    report_.step(done, run_.term_names(), mine.samples,
                 more_fields(dev_, mine.batches, done.replayed), tokens_of_all(mine));
    for (const auto& line : new_refusals(dev_)) report_.say(line);
  }

  /// Collective.
  RunEnd conclude(TraceReport<Dev>& traced) {
    work_.parts().enter(Part::rest);
    use_.between_steps();
    report_.end_of_steps();
    // A run that is done need not go on.
    const bool early = stopped() && run_.steps() < total_;
    if (early && elastic_ != nullptr && elastic_->job_goes_on()) return RunEnd::changes;
    const bool changed = run_.steps() > steps_before_ || goes_on_within_job();
    if (early) say_stopped(changed);
    if (on_gpu && options_.cuda_graphs.value_or(records_steps()))
      report_.say("replayed as a CUDA graph: ", replayed_steps_, " of ", total_ - steps_before_,
                  " steps", shapes_stay() ? "" : "; their shapes differ, see --layout");
    if (patience_.is_over()) report_.say("stops early: ", patience_.sentence());
    else if (!early && changed) evaluate("at the end");
    enter(dhp::Section::saving);
    if (changed || !early) {
      const TimeParts::In saving(work_.parts(), Part::saving);
      saved_.end();
    }
    report_.say(use_.text());
    if (dev_.trace())
      report_.exposed_communication(
          traced.end([&](const std::string& line) { report_.say(line); }));
    auto summary = work_.summary(run_.mesh());
    summary.steps_before = steps_before_;
    summary.last_step = run_.steps();
    report_.summary(std::move(summary));
    if (early && changed)
      report_.say(options_.save.empty()
                      ? std::string("nothing of this run is kept, since it has no --save DIR")
                      : dhp::concat("go on with --load ", options_.save));
    return early ? RunEnd::stopped : RunEnd::done;
  }
  void say_stopped(bool changed) {
    if (changed)
      report_.say("stops after step ", run_.steps(), ", as ",
                  is_part_done() ? "--stop-after" : "a signal", " asked");
    else report_.say(Stopping::nothing);
  }

  /// Nothing is allocated before: the other ranks wait for this one where the world is split.
  [[nodiscard]] dhp::Comm<Dev> fits(dhp::Comm<Dev> world) {
    if (memory_ != nullptr && (world.rank() == 0 || options_.process()))
      memory_->check_fits(limit_);
    return world;
  }
  /// Kernels that are loaded when needed are loaded before ranks wait for each other.
  [[nodiscard]] dhp::Comm<Dev> warmed(dhp::Comm<Dev> world) {
    const char* const loading = std::getenv("CUDA_MODULE_LOADING");
    if (on_gpu && world.size() > 1 && loading != nullptr && std::string_view(loading) == "LAZY")
      warm_up_alone(dev_, training_options(), world.rank(), setup_.make_model, loader_.example(),
                    [this](auto& run, const auto& example) { options_.prepare(run, example); });
    return world;
  }
  [[nodiscard]] dhp::Model<Dev> described(dhp::ModelBuilder<Dev>& build) {
    auto model = setup_.make_model(build);
    if (options_.trace_values.empty()) return model;
    values_.emplace(build.tensor.rank());
    return values_->traced(std::move(model));
  }
  /// For the step that was started last. Collective.
  void write_values(std::int64_t step) {
    if (!values_) return;
    const auto lines = values_->lines(dev_, run_.mesh().world(), step);
    if (run_.mesh().world().rank() == 0) values_file_->write(lines);
  }
  void enter(dhp::Section section) {
    use_.enter(section);
    if (deadlines_ != nullptr) deadlines_->enter(section);
  }
  [[nodiscard]] dhp::LoaderOptions loader_options() const {
    return {.global_batch = options_.global_batch,
            .micro_batch = options_.micro_batch,
            .shuffle_window = options_.shuffle_window,
            .threads = options_.loader_threads,
            .same_shapes = setup_.same_shapes};
  }
  [[nodiscard]] dhp::AllTrainingOptions training_options() const {
    auto made = options_.training(total_);
    made.trainer.record = records_steps();
    if (elastic_ != nullptr && elastic_->has_state) made.store.initialize = false;
    return made;
  }
  /// Whether a rank was asked to stop, in a step or between two.
  [[nodiscard]] bool stopped() const { return run_.stopped() || agreed_to_stop_ || is_part_done(); }
  [[nodiscard]] bool is_part_done() const {
    return options_.stop_after > 0 && run_.steps() >= options_.stop_after;
  }
  [[nodiscard]] bool shapes_stay() const { return setup_.same_shapes || options_.resident(); }
  [[nodiscard]] bool evaluates_after(std::int64_t step) const {
    return options_.evaluate_every > 0 && step > 0 && step % options_.evaluate_every == 0;
  }
  /// Whether this is an elastic job that trains on after its ranks have changed.
  [[nodiscard]] bool goes_on_within_job() const {
    return elastic_ != nullptr && elastic_->has_state && steps_before_ > 0;
  }
  [[nodiscard]] bool records_steps() const { return options_.records_steps(setup_.same_shapes); }
  /// Checks an epoch's first step, which all others equal, and its last one, which may be short.
  void check_shares() const {
    const bool alone = std::holds_alternative<dhp::LocalSgd>(options_.reducer);
    if ((!setup_.waits_for_replicas && !alone) || resident_) return;
    const dhp::Batching epoch(batching_.dataset_size(), options_.global_batch,
                              options_.micro_batch);
    for (const std::int64_t step : {std::int64_t{1}, epoch.steps_per_epoch()}) {
      if (step > total_) continue;
      const auto micro_batches = epoch.plan(step).micro_batches();
      dhp::check(
          !alone || micro_batches >= options_.mesh.data, "step ", step, " of an epoch has ",
          micro_batches, " micro-batches for ", options_.mesh.data,
          " replicas, but with --reducer local each needs one; choose --samples as a multiple of "
          "--global-batch");
      dhp::check(
          !setup_.waits_for_replicas || micro_batches % options_.mesh.data == 0, "step ", step,
          " of an epoch has ", micro_batches, " micro-batches for ", options_.mesh.data,
          " replicas, but synchronised batch norm needs as many on each; choose --samples as "
          "a multiple of --global-batch");
    }
  }
  /// Those of the replica `ahead` places after this one, in the step that is the next to be done.
  [[nodiscard]] dhp::StepBatches<Dev> batches_of(int ahead) {
    auto loading = loader_options();
    auto& reader = loading.reader = run_.reader();
    reader.replica = (reader.replica + ahead) % reader.replicas;
    loading.threads = 0;
    loading.steps_ahead = 1;
    loading.shuffle = !options_.resident();
    if (!options_.resident()) loading.from = run_.trainer().position();
    const auto samples =
        options_.resident() ? setup_.train.repeated(options_.global_batch) : setup_.train;
    return dhp::Loader(dev_, samples, loading).next();
  }
  [[nodiscard]] dhp::StepBatches<Dev> next_batches() {
    const auto scope = dev_.scope("next batches");
    const TimeParts::In reading(work_.parts(), Part::data);
    return resident_ ? resident_->share() : loader_.next();
  }
  /// Reports the cost of copies that keep a lost rank's share.
  void report_redundancy() {
    auto& store = run_.store();
    const auto elements = store.redundant_elements();
    if (elements == 0) return;
    const auto bytes = elements * dhp::size_of(store.accumulation());
    report_.say(
        "copies of other replicas' shares: ", bytes_text(bytes * run_.optimizer().state().size()),
        " of optimizer state on rank 0, ", bytes_text(bytes),
        " of gradients received in each step");
  }
  /// Reports where ranks are, and how fast their axes. Threads of one process have no network to be wrong.
  void report_transports() {
    if (run_.mesh().world().size() == 1) return;
    if (!options_.process() && options_.min_bandwidth_gb_s == 0) return;
    // Less than what training takes beside its state.
    const auto bytes = std::clamp<std::size_t>(run_.store().weight_bytes() / 4, 1 << 20, 8 << 20);
    const auto measured = measure_transports(dev_, run_.mesh(), dhp::detail::host_name(),
                                             static_cast<std::int64_t>(bytes));
    for (const auto& line : measured.lines()) report_.say(line);
    measured.check_bandwidth(options_.min_bandwidth_gb_s * 1e9);
  }
  void evaluate(const std::string& when) {
    if (setup_.held_out.size() == 0) return;
    const TimeParts::In evaluating(work_.parts(), Part::evaluation);
    enter(dhp::Section::evaluation);
    dhp::Loader loader(dev_, setup_.held_out, dhp::evaluation_pass(loader_options()));
    run_.read(loader);
    dhp::GlobalLoss loss{.terms = std::vector<dhp::LossTerm>(run_.term_names().size())};
    std::vector<dhp::HostArray> predictions;
    while (!loader.finished()) {
      if (agree_to_stop())
        return report_.say("evaluation ", when, ": broken off, as a signal asked");
      auto batches = loader.next();
      if (!setup_.predicted_measures) loss += run_.evaluate(batches);
      else
        for (auto& array : run_.predict(batches)) predictions.push_back(std::move(array));
    }
    const auto measures =
        setup_.predicted_measures ? predicted_measures(predictions) : setup_.measures(loss.terms);
    patience_.take(run_.trainer().steps_started(), measures);
    report_.evaluation(when, run_.trainer().steps_started(), measures);
    saved_.evaluated(measures);
  }

  /// Between two steps: whether a rank was asked to stop. Collective.
  [[nodiscard]] bool agree_to_stop() {
    const auto gathered = dhp::gather(dev_, run_.mesh().world(), {stopping_.asked() ? 1.0 : 0.0});
    return agreed_to_stop_ = agreed_to_stop_ ||
                             std::find(gathered.begin(), gathered.end(), 1.0) != gathered.end();
  }
  /// Rank 0 has the predictions, and all ranks its numbers.
  [[nodiscard]] Measures predicted_measures(const std::vector<dhp::HostArray>& predictions) {
    auto measures = setup_.predicted_measures(predictions);
    std::vector<double> values;
    for (const auto& [name, value] : measures) values.push_back(value);
    const auto all = dhp::gather(dev_, run_.mesh().world(), values);
    for (std::size_t at = 0; at < measures.size(); ++at) measures[at].second = all[at];
    return measures;
  }

  Dev& dev_;
  RankWork work_;
  MemoryUse use_;
  MemoryPlanner* memory_;
  const ElasticHooks* elastic_;
  MemoryLimit limit_;
  const TrainingSetup& setup_;
  const RunOptions& options_;
  dhp::Deadlines* deadlines_;
  Stopping& stopping_;
  bool agreed_to_stop_ = false;
  bool has_state_ = false;
  bool has_steps_ = false;
  std::int64_t steps_before_ = 0;    // of this run()
  std::int64_t replayed_steps_ = 0;  // in it
  const dhp::Batching batching_;
  std::int64_t total_;
  RunReport report_;
  dhp::Loader<Dev, AnyBatcher> loader_;
  std::optional<ValueTrace<Dev>> values_;
  std::optional<dhp::OpenFile> values_file_;
  dhp::TrainingRun<Dev> run_;
  Patience patience_;
  SavedRun saved_;
  std::optional<dhp::StepBatches<Dev>> resident_;  // the input of every step
};

}  // namespace examples
