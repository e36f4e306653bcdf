// Program: one rank's training, from the loader to the last checkpoint.
#pragma once

#include <dhp/comm/meet/address.hpp>

#include "memory_use.hpp"
#include "ranks.hpp"
#include "saved_run.hpp"
#include "stopping.hpp"
#include "trace_report.hpp"
#include "transport_report.hpp"

#include <functional>
#include <optional>
#include <string>
#include <utility>

namespace examples {

/// How a run has ended.
enum class RunEnd {
  done,
  stopped,  ///< saved before its last step, as a signal asked
  changes,  ///< its ranks are to change: all have done the same steps
};

/// What a run in one generation of an elastic job asks of the job.
struct ElasticHooks {
  bool has_state = false;               ///< somewhere among the ranks: none is loaded or drawn
  std::function<bool()> change_wanted;  ///< all ranks are to leave after this step
  std::function<bool()>
      job_goes_on;  ///< with other ranks, after all were asked to stop. Collective
  std::function<void()> check_newest;  ///< throws where another generation has begun
};

/// One rank's run; rank 0 alone speaks and writes.
class Program {
 public:
  /// memory: of rank 0 where ranks are threads; null: nobody need be told. elastic: null where ranks stay the same.
  Program(Dev& dev, dhp::Comm<Dev> world, const TrainingSetup& setup, MemoryPlanner* memory,
          dhp::Deadlines* deadlines, const Stopping& stopping,
          const ElasticHooks* elastic = nullptr)
      : dev_(dev),
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
        run_(dev, observed(dev, fits(std::move(world)), options_), training_options(),
             setup.make_model, dhp::example_batch(dev, setup.train, options_.micro_batch)),
        saved_(dev, setup, run_, batching_, report_,
               elastic == nullptr ? nullptr : elastic->check_newest) {
    if (elastic_ != nullptr) run_.trainer().commit_by([this] { run_.mesh().world().barrier(); });
    auto loading = run_.for_this_replica(loader_options());
    if (options_.resident()) {
      loading.shuffle = false;
      loading.threads = 0;
      const auto samples = setup.train.repeated(options_.global_batch);
      resident_ = dhp::Loader(dev, samples, loading).next();
    } else {
      loader_.emplace(dev, setup.train, loading);
    }
  }

  // Of an elastic job.
  [[nodiscard]] dhp::TrainingRun<Dev>& training() { return run_; }
  /// Whether its weights are those of a step, and not on their way.
  [[nodiscard]] bool has_state() const { return has_state_; }
  [[nodiscard]] dhp::TrainingProgress progress() {
    auto progress = run_.trainer().progress();
    progress.samples = batching_.after(progress.steps).samples;
    return progress;
  }
  /// Its weights have been written to, and are those after this.
  void go_on_after(const dhp::TrainingProgress& progress, const Measures& last_step) {
    batching_.go_on_at({progress.steps, progress.samples});
    run_.trainer().resume(progress);
    run_.store().updated(dev_);
    report_.know(last_step);
    has_state_ = true;
  }
  /// After Aborted: its state becomes that after so many steps, by the update of the step that was interrupted or without
  /// it. A save under way is given up.
  void settle_at(std::int64_t steps) {
    saved_.give_up();
    if (const auto done = run_.trainer().settle_at(steps))
      report_.step(*done, run_.term_names(), 0, {});
  }
  [[nodiscard]] const Measures& last_step() const { return report_.last_step(); }
  void say(const std::string& line) { report_.say(line); }

  RunEnd run() {
    check_shares();
    if (!has_state_) saved_.begin(total_);
    has_state_ = true;
    auto& trainer = run_.trainer();
    const auto first_step = trainer.steps_done();
    if (loader_) loader_->start_at(batching_.after(first_step));
    report_.start(first_step);
    report_.say("layout ", to_text(run_.mesh()), ", schedule ", options_.pipeline.schedule.name(),
                ", ", precision_name(options_.precision), ", ", batching_.dataset_size(),
                " training samples, ", total_, " steps of ", options_.global_batch);
    TraceReport traced(dev_, run_.mesh().world(), options_.trace);
    if (memory_ != nullptr)
      for (const auto& line : memory_->lines(limit_)) report_.say(line);
    say_of_copies();
    if (!goes_on_within(first_step)) report_transports();
    if (!goes_on_within(first_step)) evaluate("at the start");
    else if (evaluates_after(first_step)) evaluate(dhp::concat("after step ", first_step));

    // A step's numbers are read when the next one has been started: the device never waits for them.
    std::optional<dhp::StepTicket<Dev>> under_way;
    std::int64_t recorded_steps = 0;
    const auto finish = [&] {
      if (!under_way) return;
      const auto done = trainer.finish(*under_way);
      stopped_ |= done.stop_requested;
      recorded_steps += done.recorded ? 1 : 0;
      traced.step_done();
      const auto& mine = under_way->mine;
      report_.step(done, run_.term_names(), mine.samples,
                   more_fields(dev_, mine.batches, done.recorded));
      under_way.reset();
      for (const auto& line : new_refusals(dev_)) report_.say(line);
    };
    report_.restart_clock();
    for (auto section = dhp::Section::first_step; trainer.steps_done() < total_ && !stopped_;
         section = dhp::Section::step) {
      enter(section);
      if (stopping_.asked() || (elastic_ != nullptr && elastic_->change_wanted()))
        trainer.request_stop();
      auto ticket = trainer.start(next_batches());
      finish();
      under_way = std::move(ticket);
      traced.step_started();
      const auto step = trainer.steps_done();
      const bool last = step == total_;
      const bool evaluates = evaluates_after(step);
      const bool saves = options_.save_every > 0 && step % options_.save_every == 0;
      // On the Cpu the step has been done by now.
      if (!on_gpu || last || evaluates || saves) finish();
      if (evaluates && !last) evaluate(dhp::concat("after step ", step));
      if (saves && !last) {
        enter(dhp::Section::saving);
        saved_.save();
      }
      if (evaluates || saves) report_.restart_clock();
    }
    finish();
    use_.between_steps();
    report_.end_of_steps();
    stopped_ = stopped_ && trainer.steps_done() < total_;  // a run that is done need not go on
    if (stopped_ && elastic_ != nullptr && elastic_->job_goes_on()) return RunEnd::changes;
    if (stopped_) report_.say("stops after step ", trainer.steps_done(), ", as a signal asked");
    if (on_gpu && options_.cuda_graphs.value_or(records_steps()))
      report_.say("recorded as a CUDA graph: ", recorded_steps, " of ", total_ - first_step,
                  " steps", shapes_stay() ? "" : "; their shapes differ, see --layout");
    if (!stopped_) evaluate("at the end");
    enter(dhp::Section::saving);
    saved_.end();
    report_.say(use_.text());
    if (dev_.trace())
      report_.exposed_communication(
          traced.end([&](const std::string& line) { report_.say(line); }));
    return stopped_ ? RunEnd::stopped : RunEnd::done;
  }

 private:
  /// Nothing is allocated before: the other ranks wait for this one where the world is split.
  [[nodiscard]] dhp::Comm<Dev> fits(dhp::Comm<Dev> world) {
    if (memory_ != nullptr && (world.rank() == 0 || options_.process()))
      memory_->check_fits(limit_);
    return world;
  }
  void enter(dhp::Section section) {
    use_.enter(section);
    if (deadlines_ != nullptr) deadlines_->enter(section);
  }
  [[nodiscard]] dhp::LoaderOptions loader_options() const {
    return {.global_batch = options_.global_batch,
            .micro_batch = options_.micro_batch,
            .threads = options_.loader_threads,
            .same_shapes = setup_.same_shapes};
  }
  [[nodiscard]] dhp::TrainingOptions training_options() const {
    auto made = options_.training(total_);
    made.trainer.record = records_steps();
    if (elastic_ != nullptr && elastic_->has_state) made.store.initialize = false;
    return made;
  }
  [[nodiscard]] bool shapes_stay() const { return setup_.same_shapes || options_.resident(); }
  [[nodiscard]] bool evaluates_after(std::int64_t step) const {
    return options_.evaluate_every > 0 && step > 0 && step % options_.evaluate_every == 0;
  }
  /// In an elastic job whose ranks have changed.
  [[nodiscard]] bool goes_on_within(std::int64_t first_step) const {
    return elastic_ != nullptr && elastic_->has_state && first_step > 0;
  }
  [[nodiscard]] bool records_steps() const {
    if (elastic_ != nullptr) return false;  // ranks agree in the middle of each step
    if (dev_.trace()) return false;  // what happens when in a step that is one piece is not seen
    if (!shapes_stay()) return false;
    if (options_.mesh.size() == 1) return options_.cuda_graphs.value_or(true);
    // The host compares what ranks call, and graphs of several GPUs of one process may wait for each other.
    return options_.cuda_graphs.value_or(false) && options_.process() &&
           !options_.check_collectives;
  }
  /// The first step of an epoch is like all but the last one, which may be short.
  void check_shares() const {
    if (!setup_.waits_for_replicas || resident_) return;
    const dhp::Batching epoch(batching_.dataset_size(), options_.global_batch,
                              options_.micro_batch);
    for (const auto step : {std::int64_t{0}, epoch.steps_per_epoch() - 1}) {
      if (step >= total_) continue;
      const auto micro_batches = epoch.plan(step).micro_batches();
      dhp::check(
          micro_batches % options_.mesh.data == 0, "step ", step + 1, " of an epoch has ",
          micro_batches, " micro-batches for ", options_.mesh.data,
          " replicas, but synchronised batch norm needs as many on each; choose --samples as "
          "a multiple of --global-batch");
    }
  }
  [[nodiscard]] dhp::StepBatches<Dev> next_batches() {
    const auto scope = dev_.scope("next batches");
    return resident_ ? resident_->share() : loader_->next();
  }
  /// What it costs that the loss of a rank loses no share of the state.
  void say_of_copies() {
    auto& store = run_.store();
    const auto elements = store.copy_elements();
    if (elements == 0) return;
    const auto bytes = elements * dhp::size_of(store.accumulation());
    report_.say(
        "copies of other replicas' shares: ", bytes_text(bytes * run_.optimizer().state().size()),
        " of optimizer state on rank 0, ", bytes_text(bytes),
        " of gradients received in each step");
  }
  /// Where the ranks are, and how fast their axes. Threads of one process have no network to be wrong.
  void report_transports() {
    if (run_.mesh().world().size() == 1) return;
    if (!options_.process() && options_.min_bandwidth_gb_s == 0) return;
    const auto measured = measure_transports(dev_, run_.mesh(), dhp::host_name());
    for (const auto& line : measured.lines()) report_.say(line);
    measured.check_bandwidth(options_.min_bandwidth_gb_s * 1e9);
  }
  void evaluate(const std::string& when) {
    if (setup_.held_out.size() == 0) return;
    enter(dhp::Section::evaluation);
    auto loader = run_.loader(setup_.held_out, dhp::evaluation_pass(loader_options()));
    const auto loss = run_.evaluate(loader);
    const auto measures = setup_.measures(loss.terms);
    report_.evaluation(when, run_.trainer().steps_done(), measures);
    saved_.evaluated(measures);
  }

  Dev& dev_;
  MemoryUse use_;
  MemoryPlanner* memory_;
  const ElasticHooks* elastic_;
  MemoryLimit limit_;
  const TrainingSetup& setup_;
  const RunOptions& options_;
  dhp::Deadlines* deadlines_;
  const Stopping& stopping_;
  bool stopped_ = false;
  bool has_state_ = false;
  dhp::Batching batching_;
  std::int64_t total_;
  RunReport report_;
  dhp::TrainingRun<Dev> run_;
  SavedRun saved_;
  std::optional<dhp::Loader<Dev, AnyBatcher>> loader_;
  std::optional<dhp::StepBatches<Dev>> resident_;  // the input of every step
};

}  // namespace examples
