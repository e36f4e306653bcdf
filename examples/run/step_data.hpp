// StepData: the micro-batches of a rank's steps, and how every loader of the run cuts its samples.
#pragma once

#include <dhp/train/training_run.hpp>

#include "training.hpp"

#include <cstdint>
#include <optional>
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

class StepData {
 public:
  /// Keeps references.
  StepData(Dev& dev, const TrainingSetup& setup)
      : dev_(dev),
        setup_(setup),
        options_(setup.options),
        loader_(dev, setup.train, loader_options_of(setup)) {}

  [[nodiscard]] dhp::StepSource<Dev>& source() { return loader_; }
  /// run: the run that was made from source(). With synthetic-resident, puts the input of all steps on the device.
  void begin(dhp::TrainingRun<Dev>& run) {
    if (options_.resident()) resident_ = next_of(run, 0);
  }
  [[nodiscard]] dhp::StepBatches<Dev> next() {
    const auto scope = dev_.scope("next batches");
    return resident_ ? resident_->share() : loader_.next();
  }
  /// Returns the micro-batches of the next step for the replica `ahead` places after this one.
  [[nodiscard]] dhp::StepBatches<Dev> next_of(dhp::TrainingRun<Dev>& run, int ahead) {
    auto loading = loader_options_of(setup_);
    auto& reader = loading.reader = run.reader();
    reader.replica = (reader.replica + ahead) % reader.replicas;
    loading.threads = 0;
    loading.steps_ahead = 1;
    loading.shuffle = !options_.resident();
    if (!options_.resident()) loading.from = run.trainer().position();
    const auto samples =
        options_.resident() ? setup_.train.repeated(options_.global_batch) : setup_.train;
    return dhp::Loader(dev_, samples, loading).next();
  }
  /// Throws if replicas get too few or unequally many micro-batches. Checks an epoch's first step, which stands for all
  /// but the last, and the last, which may be short. total: steps of the run.
  void check_shares(std::int64_t total) const {
    const bool alone = std::holds_alternative<dhp::LocalSgd>(options_.reducer);
    if ((!setup_.waits_for_replicas && !alone) || resident_) return;
    const dhp::Batching epoch(setup_.train.size(), options_.global_batch, options_.micro_batch);
    for (const std::int64_t step : {std::int64_t{1}, epoch.steps_per_epoch()}) {
      if (step > total) continue;
      const auto micro_batches = epoch.plan(step).micro_batches();
      dhp::check(
          !alone || micro_batches >= options_.mesh.data, "step ", step, " of an epoch has ",
          micro_batches, " micro-batches for ", options_.mesh.data,
          " replicas, but with --reducer local each needs one; choose --samples as a multiple of "
          "--global-batch");
      dhp::check(!setup_.waits_for_replicas || micro_batches % options_.mesh.data == 0, "step ",
                 step, " of an epoch has ", micro_batches, " micro-batches for ",
                 options_.mesh.data,
                 " replicas, but synchronized batch norm needs the same number on each; choose "
                 "--samples as a multiple of --global-batch");
    }
  }

 private:
  Dev& dev_;
  const TrainingSetup& setup_;
  const RunOptions& options_;
  dhp::Loader<Dev, AnyBatcher> loader_;
  std::optional<dhp::StepBatches<Dev>> resident_;  // the input of every step
};

}  // namespace examples
