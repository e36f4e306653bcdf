// Program: one rank's training, from the loader to the last checkpoint.
#pragma once

#include <dhp/comm/gather.hpp>
#include <dhp/comm/rendezvous/address.hpp>

#include "../report/memory.hpp"
#include "../report/memory_use.hpp"
#include "../report/trace_file.hpp"
#include "../report/transport_report.hpp"
#include "patience.hpp"
#include "rank_run.hpp"
#include "rank_work.hpp"
#include "saved_run.hpp"
#include "stopping.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

namespace examples {

/// How a run has ended.
enum class RunEnd {
  done,
  stopped,  ///< ended before its last step, by a signal or --stop-after
  changes,  ///< its ranks will change; all have done the same steps
};

/// A run's link to its elastic job, in one generation.
struct ElasticHooks {
  bool first = true;                    ///< the job has not begun to train
  bool has_state = false;               ///< ranks hold the state: no rank loads or draws it
  std::function<void()> begin;          ///< notes that the job has begun
  std::function<bool()> change_wanted;  ///< returns whether ranks should change after this step
  std::function<bool()>
      job_goes_on;  ///< returns whether the job continues on the ranks that stay. Collective
  std::function<void()> check_newest;  ///< throws if another generation has begun
};

/// One rank's run; only rank 0 prints and writes.
class Program {
 public:
  /// memory: plans the run; null after an elastic job's first generation. elastic: null if ranks stay the same.
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
        total_(options_.total_steps(batching_of(setup))),
        report_(options_, world.rank() == 0, total_),
        rank_(dev, fits(std::move(world)), setup, training_options()),
        run_(rank_.run()),
        patience_(options_.stop_early, options_.patience, run_.trainer().best()),
        saved_(setup, run_, report_, patience_,
               elastic == nullptr ? nullptr : elastic->check_newest) {
    if (elastic_ != nullptr)
      run_.trainer().set_update_barrier([this] { run_.mesh().world().barrier(); });
    run_.stop_when([this] { return stopping_.asked() || changes_ranks(); });
  }

  // Only elastic jobs use these.
  [[nodiscard]] dhp::TrainingRun<Dev>& training() { return run_; }
  /// Returns whether this rank's state has been initialized, loaded or received.
  [[nodiscard]] bool has_state() const { return has_state_; }
  /// Continues after `state`, whose weights have already been copied into this run.
  void resume_after(const dhp::RunState& state, const Measures& last_step) {
    run_.resume_after(state);
    if (auto* replicas = run_.replicas()) replicas->updated(dev_);
    report_.know(last_step);
    has_state_ = true;
  }
  /// Call it after Aborted. Finishes the update of the interrupted step, or forgets this step, to reach the state after
  /// `steps` steps. Abandons a save in progress. Returns whether a step was forgotten.
  bool finish_interrupted(std::int64_t steps) {
    saved_.give_up();
    const bool interrupted = run_.trainer().is_interrupted();
    const auto done = run_.trainer().finish_interrupted(steps);
    if (done) report_.step(*done, run_.term_names(), 0, {});
    return interrupted && !done;
  }
  [[nodiscard]] const Measures& last_step() const { return report_.last_step(); }
  /// Returns whether run() has started a step.
  [[nodiscard]] bool has_steps() const { return has_steps_; }
  void log(const std::string& line) { report_.log(line); }

  RunEnd run() {
    rank_.check_shares(total_);
    if (!begin()) return RunEnd::done;
    announce();
    traced_.emplace(dev_, run_.mesh().world(), options_.trace);
    check_evaluations();
    if (options_.evaluate_only) return evaluate_only();
    train();
    return conclude();
  }

 private:
  /// Loads the saved state, unless it came from other ranks. Returns whether something is left to do.
  [[nodiscard]] bool begin() {
    const TimeParts::In loading(work_.parts(), Part::saving);
    saved_.hold(elastic_ != nullptr && (elastic_->has_state || !elastic_->first));
    if (!has_state_ && !saved_.begin(total_)) return false;
    has_state_ = true;
    steps_before_ = run_.steps();
    if (!options_.evaluate_only) stopping_.begin_steps(options_.grace_s);
    return true;
  }
  /// Prints layout and data, warnings about them, memory, and how the ranks are connected. Collective.
  void announce() {
    report_.start(steps_before_, elastic_ != nullptr && !elastic_->first);
    if (elastic_ != nullptr && elastic_->first) {
      saved_.replace();
      elastic_->begin();
    }
    report_.log("layout ", to_text(run_.mesh()), ", schedule ", options_.pipeline.schedule.name(),
                ", ", precision_name(options_.store.compute), ", ",
                dhp::detail::pluralize(setup_.train.size(), "training sample"), ", ",
                dhp::detail::pluralize(total_, "step"), " of ", options_.global_batch);
    for (const auto& warning : options_.warnings(total_)) report_.log("warning: ", warning);
    if (setup_.shortfalls)
      for (const auto& lacking : setup_.shortfalls(dev_, options_))
        report_.log("warning: ", lacking);
    if (memory_ != nullptr)
      for (const auto& line : memory_->lines(limit_)) report_.log(line);
    announce_redundancy();
    if (!goes_on_within_job()) announce_transports();
  }
  /// Prints the cost of the copies of other replicas' shards, if there are any.
  void announce_redundancy() {
    auto& store = run_.store();
    const auto elements = store.redundant_elements();
    if (elements == 0) return;
    const auto bytes = elements * dhp::size_of(store.accumulation());
    report_.log(
        "copies of other replicas' shares: ", bytes_text(bytes * run_.optimizer().state().size()),
        " of optimizer state on rank 0, ", bytes_text(bytes),
        " of gradients received in each step");
  }
  /// Measures the axes and prints them with the hosts; skips thread ranks unless --min-bandwidth is given. Collective.
  void announce_transports() {
    if (run_.mesh().world().size() == 1) return;
    if (!options_.process() && options_.min_bandwidth_gb_s == 0) return;
    // The messages take less memory than training needs beside its state.
    const auto bytes = std::clamp<std::size_t>(run_.store().weight_bytes() / 4, 1 << 20, 8 << 20);
    const auto measured = measure_transports(dev_, run_.mesh(), dhp::detail::host_name(),
                                             static_cast<std::int64_t>(bytes));
    for (const auto& line : measured.lines()) report_.log(line);
    measured.check_bandwidth(options_.min_bandwidth_gb_s * 1e9);
  }
  void check_evaluations() const {
    for (const auto& [needed, name] : {std::pair{options_.evaluate_only, "--evaluate-only"},
                                       {!options_.stop_early.empty(), "--stop-early"},
                                       {!options_.keep_best.empty(), "--keep-best"}})
      dhp::check(!needed || setup_.held_out.size() > 0, name,
                 ": no samples are held out, and there is no test set");
  }
  RunEnd evaluate_only() {
    evaluate("as loaded");
    report_.end_of_steps();
    return RunEnd::done;
  }

  /// Starts a step and finishes the one before, even if the new step is aborted. So the device never waits while the
  /// host reads and reports a step's numbers.
  void start_step() {
    rank_.choose_values();
    auto batches = [&] {
      const TimeParts::In reading(work_.parts(), Part::data);
      return rank_.next();
    }();
    std::optional<dhp::StepTicket<Dev>> started;
    try {
      started = run_.start(batches);
    } catch (const dhp::Aborted&) {
      finish_step();
      throw;
    }
    finish_step();
    under_way_ = std::move(started);
    traced_->step_started();
    rank_.write_values();
  }
  /// Waits for the step that was started last.
  void finish_step() {
    if (!under_way_) return;
    const auto done = run_.finish(*under_way_);
    replayed_steps_ += done.replayed ? 1 : 0;
    traced_->step_done();
    const auto& mine = under_way_->mine;
    work_.step_done(mine);
    report_.step(done, run_.term_names(), mine.samples,
                 more_fields(dev_, mine.batches, done.replayed), tokens_of_all(mine));
    for (const auto& line : new_refusals(dev_)) report_.log(line);
    under_way_.reset();
  }
  void train() {
    if (!goes_on_within_job()) evaluate("at the start");
    else if (steps_before_ < total_ && evaluates_after(steps_before_))
      evaluate(dhp::concat("after step ", steps_before_));
    report_.restart_clock();
    work_.parts().enter(Part::compute);
    for (auto section = dhp::Section::first_step;
         run_.steps() < total_ && !stopped() && !patience_.is_over();
         section = dhp::Section::step) {
      enter(section);
      start_step();
      has_steps_ = true;
      const auto step = run_.steps();
      const bool last = step == total_;
      const bool evaluates = evaluates_after(step);
      const bool saves = options_.save_every > 0 && step % options_.save_every == 0;
      // On the Cpu the step is complete when start() returns.
      if (!on_gpu || last || evaluates || saves) finish_step();
      if (step % Stragglers::period == 0)
        for (const auto& slow : work_.slow_ranks(run_.mesh().world()))
          report_.log("warning: ", slow);
      if (evaluates && !last) evaluate(dhp::concat("after step ", step));
      if (saves && !last) {
        const TimeParts::In saving(work_.parts(), Part::saving);
        enter(dhp::Section::saving);
        saved_.save();
      }
      if (evaluates || saves) report_.restart_clock();
    }
    finish_step();
  }

  /// Ends a run on all ranks: saves, reports, and returns why it ended. Collective.
  RunEnd conclude() {
    work_.parts().enter(Part::rest);
    use_.between_steps();
    report_.end_of_steps();
    // A run that has reached its end, by its steps or by its measure, is done, even if it was asked to stop there.
    const bool early = stopped() && run_.steps() < total_ && !patience_.is_over();
    report_.check_applied(!early);
    if (early && !is_part_done() && elastic_ != nullptr && elastic_->job_goes_on())
      return RunEnd::changes;
    const bool changed = run_.steps() > steps_before_ || goes_on_within_job();
    if (early) say_stopped(changed);
    if (on_gpu && options_.cuda_graphs.value_or(training_options().trainer.record))
      report_.log(
          "replayed as a CUDA graph: ", replayed_steps_, " of ",
          dhp::detail::pluralize(total_ - steps_before_, "step"),
          setup_.same_shapes || options_.resident() ? "" : "; their shapes differ, see --layout");
    if (patience_.is_over()) report_.log("stops early: ", patience_.sentence());
    else if (!early && changed) evaluate("at the end");
    enter(dhp::Section::end);  // all wait for this save and for exports, and for no other save
    if (changed || !early) {
      const TimeParts::In saving(work_.parts(), Part::saving);
      saved_.end();
    }
    report_.log(use_.text());
    if (dev_.trace())
      report_.exposed_communication(
          run_.steps(), traced_->end([&](const std::string& line) { report_.log(line); }));
    auto summary = work_.summary(run_.mesh());
    summary.steps_before = steps_before_;
    summary.last_step = run_.steps();
    report_.summary(std::move(summary));
    if (early && changed)
      report_.log(options_.save.empty()
                      ? std::string("nothing of this run is kept, since it has no --save DIR")
                      : dhp::concat("go on with --",
                                    options_.resume == options_.save ? "resume " : "load ",
                                    options_.save));
    return early ? RunEnd::stopped : RunEnd::done;
  }
  void say_stopped(bool changed) {
    if (changed)
      report_.log("stops after step ", run_.steps(), ", as ",
                  is_part_done() ? "--stop-after" : "a signal", " asked");
    else if (is_part_done())
      report_.log("nothing is left to do up to --stop-after ", options_.stop_after, ": ",
                  options_.load, " is after step ", run_.steps());
    else report_.log(Stopping::nothing);
  }

  /// Returns the world, or throws if the run exceeds the memory. Call it before anything is allocated.
  [[nodiscard]] dhp::Comm<Dev> fits(dhp::Comm<Dev> world) {
    if (memory_ != nullptr && (world.rank() == 0 || options_.process()))
      memory_->check_fits(limit_);
    return world;
  }
  void enter(dhp::Section section) {
    use_.enter(section);
    if (deadlines_ != nullptr) deadlines_->enter(section);
  }
  [[nodiscard]] dhp::AllTrainingOptions training_options() const {
    auto result = options_.training(total_);
    result.trainer.record = options_.records_steps(setup_.same_shapes);
    if (elastic_ != nullptr && elastic_->has_state) result.store.initialize = false;
    return result;
  }
  [[nodiscard]] bool stopped() const { return run_.stopped() || is_part_done(); }
  /// Returns whether the elastic job wants other ranks and two steps are left: one may begin before all ranks know.
  [[nodiscard]] bool changes_ranks() const {
    return elastic_ != nullptr && run_.steps() + 2 < total_ && elastic_->change_wanted();
  }
  [[nodiscard]] bool is_part_done() const {
    return options_.stop_after > 0 && run_.steps() >= options_.stop_after;
  }
  [[nodiscard]] bool evaluates_after(std::int64_t step) const {
    return options_.evaluate_every > 0 && step > 0 && step % options_.evaluate_every == 0;
  }
  /// Returns whether this is an elastic job that continues after a change of its ranks.
  [[nodiscard]] bool goes_on_within_job() const {
    return elastic_ != nullptr && elastic_->has_state && steps_before_ > 0;
  }
  void evaluate(const std::string& when) {
    if (setup_.held_out.size() == 0) return;
    const TimeParts::In evaluating(work_.parts(), Part::evaluation);
    enter(dhp::Section::evaluation);
    const auto measures = measured();
    if (!measures)
      return report_.log("evaluation ", when, ": broken off, as a signal ",
                         elastic_ == nullptr ? "" : "or its elastic job ", "asked",
                         run_.steps() < total_ || options_.save.empty()
                             ? ""
                             : "; to make up for it, use --evaluate-only --load " + options_.save);
    patience_.take(run_.steps(), *measures, evaluates_after(run_.steps()));
    report_.evaluation(when, run_.steps(), *measures);
    saved_.evaluated(*measures);
  }

  /// Returns the measures of the held-out samples on all ranks; nullopt if the run was asked to stop meanwhile.
  [[nodiscard]] std::optional<Measures> measured() {
    dhp::Loader pass(dev_, setup_.held_out, dhp::evaluation_pass(loader_options_of(setup_)));
    if (!setup_.predicted_measures) {
      const auto loss = run_.evaluate(pass);
      if (!loss) return std::nullopt;
      return setup_.measures(loss->terms);
    }
    const auto predictions = run_.predict(pass);
    if (!predictions) return std::nullopt;
    // Only rank 0 has the predictions; all ranks get its measures.
    return dhp::detail::gather_values(dev_, run_.mesh().world(),
                                      setup_.predicted_measures(*predictions))[0];
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
  bool has_state_ = false;
  bool has_steps_ = false;
  std::int64_t steps_before_ = 0;  // steps before this run()
  std::int64_t total_;
  RunReport report_;
  RankRun rank_;
  dhp::TrainingRun<Dev>& run_;
  Patience patience_;
  SavedRun saved_;
  std::optional<TraceReport<Dev>> traced_;
  std::optional<dhp::StepTicket<Dev>> under_way_;  // the step that was started last
  std::int64_t replayed_steps_ = 0;  // finished steps that were replayed as a CUDA graph
};

}  // namespace examples
