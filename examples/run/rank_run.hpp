// RankRun: one rank's training run as its options describe it: model, the micro-batches of its steps, traced values and
// verified steps.
#pragma once

#include <dhp/core/open_file.hpp>
#include <dhp/extra/verify.hpp>
#include <dhp/train/training_run.hpp>

#include "../report/value_trace.hpp"
#include "ranks.hpp"
#include "training.hpp"

#include <cstdint>
#include <optional>
#include <utility>
#include <variant>

namespace examples {

/// Returns how the data are cut into steps. A continued run begins where the saved one stopped.
[[nodiscard]] inline dhp::Batching batching_of(const TrainingSetup& setup) {
  const auto& options = setup.options;
  dhp::Batching batching(setup.train.size(), options.global_batch, options.micro_batch);
  batching.resume_at(options.from);
  return batching;
}
[[nodiscard]] inline dhp::LoaderOptions loader_options_of(const TrainingSetup& setup) {
  const auto& options = setup.options;
  return {.global_batch = options.global_batch,
          .micro_batch = options.micro_batch,
          .shuffle_window = options.shuffle_window,
          .threads = options.loader_threads,
          .same_shapes = setup.same_shapes};
}

class RankRun {
 public:
  /// training: the library's options, made by setup.options.training(). Keeps references. Collective.
  RankRun(Dev& dev, dhp::Comm<Dev> world, const TrainingSetup& setup,
          const dhp::AllTrainingOptions& training)
      : dev_(dev),
        setup_(setup),
        options_(setup.options),
        loader_(dev, setup.train, loader_options_of(setup)),
        run_(
            dev, observed(dev, std::move(world), options_), training,
            [this](dhp::ModelBuilder<Dev>& build) { return described(build); }, loader_) {
    if (values_ && run_.mesh().world().rank() == 0)
      values_file_.emplace(options_.trace_values, O_WRONLY | O_CREAT | O_TRUNC);
    if (options_.resident()) resident_ = next_of(0);
    if (options_.verify_every > 0)
      dhp::verify_every(run_, options_.verify_every, [this](int ahead) { return next_of(ahead); });
    if (options_.synthetic_gradients)
      options_.prepare(run_, dhp::example_batch(dev_, setup_.train, options_.micro_batch));
  }

  [[nodiscard]] dhp::TrainingRun<Dev>& run() { return run_; }
  [[nodiscard]] dhp::StepBatches<Dev> next() {
    const auto scope = dev_.scope("next batches");
    return resident_ ? resident_->share() : loader_.next();
  }
  /// Returns the micro-batches of the next step for the replica `ahead` places after this one.
  [[nodiscard]] dhp::StepBatches<Dev> next_of(int ahead) {
    auto loading = loader_options_of(setup_);
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
  /// Throws if replicas get too few or unequally many micro-batches. Checks an epoch's first step and its last one,
  /// which may be short; all others are like the first. total: steps of the run.
  void check_shares(std::int64_t total) const {
    const bool alone = std::holds_alternative<dhp::LocalSgd>(options_.reducer);
    if ((!setup_.waits_for_replicas && !alone) || resident_) return;
    const dhp::Batching epoch(setup_.train.size(), options_.global_batch, options_.micro_batch);
    for (const std::int64_t step : {std::int64_t{1}, epoch.steps_per_epoch()}) {
      if (step > total) continue;
      const auto micro_batches = epoch.plan(step).micro_batches();
      dhp::check(
          !alone || micro_batches >= options_.layout.data, "step ", step, " of an epoch has ",
          dhp::detail::pluralize(micro_batches, "micro-batch"), " for ", options_.layout.data,
          " replicas, but with --reducer local each needs one; choose --samples as a multiple of "
          "--global-batch");
      dhp::check(!setup_.waits_for_replicas || micro_batches % options_.layout.data == 0, "step ",
                 step, " of an epoch has ", dhp::detail::pluralize(micro_batches, "micro-batch"),
                 " for ", options_.layout.data,
                 " replicas, but synchronized batch norm needs the same number on each; choose "
                 "--samples as a multiple of --global-batch");
    }
  }

  /// Decides whether the next step's values are traced; call it before the step.
  void choose_values() {
    if (values_)
      values_->takes(options_.stop_after == 0 || options_.stop_after == run_.steps() + 1);
  }
  /// Writes the traced values of the step that was started last. Collective.
  void write_values() {
    if (!values_) return;
    const auto lines = values_->lines(dev_, run_.mesh().world(), run_.steps());
    if (run_.mesh().world().rank() == 0) values_file_->write(lines);
  }

 private:
  [[nodiscard]] dhp::Model<Dev> described(dhp::ModelBuilder<Dev>& build) {
    auto model = describe_tuned(build, options_.tuning, setup_.head, setup_.make_model);
    if (options_.trace_values.empty()) return model;
    values_.emplace(build.tensor.rank());
    return values_->traced(std::move(model));
  }

  Dev& dev_;
  const TrainingSetup& setup_;
  const RunOptions& options_;
  dhp::Loader<Dev, AnyBatcher> loader_;
  std::optional<dhp::StepBatches<Dev>>
      resident_;  // the input of every step, with synthetic-resident
  std::optional<ValueTrace<Dev>> values_;
  std::optional<dhp::OpenFile> values_file_;
  dhp::TrainingRun<Dev> run_;
};

}  // namespace examples
