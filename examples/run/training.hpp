// The program that the trainers share, compiled once for the device of the build. It starts the ranks, trains,
// evaluates, saves and reports.
#pragma once

#include <dhp/comm/watch/deadlines.hpp>
#include <dhp/default_device.hpp>
#include <dhp/ops/meta.hpp>

#include "../data/data.hpp"
#include "../options/options.hpp"
#include "../report/run_report.hpp"
#include "stopping.hpp"

#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace examples {

using Dev = dhp::DefaultDevice;
inline constexpr bool on_gpu = !Dev::host_accessible;
[[nodiscard]] inline RanksAre ranks_are(const RunOptions& options) {
  if (on_gpu) return RanksAre::on_gpus;
  return options.process() ? RanksAre::processes : RanksAre::threads;
}

[[nodiscard]] inline double share(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

/// Describes the whole model without data. recompute: as with --recompute.
using DescribePlanned =
    std::function<dhp::Model<dhp::Meta>(dhp::ModelBuilder<dhp::Meta>&, bool recompute)>;

/// A training whose memory and time are planned.
struct PlannedTraining {
  RunOptions options{};
  AnyBatcher train{};
  DescribePlanned plan_model{};
  /// Prefix of the names of the last layers' weights.
  std::string head{};
  /// Layers wait for the micro-batches of other replicas, so every replica needs the same number in every step.
  bool waits_for_replicas = false;
  /// Micro-batches with equally many samples have the same shapes.
  bool same_shapes = false;
  RanksAre ranks = RanksAre::threads;
};

/// Returns the plan of the model describe(build, config).
[[nodiscard]] PlannedTraining planned_of(const RunOptions& options, const TrainerData& data,
                                         auto config, auto describe) {
  return {.options = options,
          .train = data.train,
          .plan_model =
              [=](dhp::ModelBuilder<dhp::Meta>& build, bool recompute) mutable {
                config.recompute = recompute;
                return describe(build, config);
              },
          .ranks = ranks_are(options)};
}

/// The rank of this process, once all ranks of the job are connected.
struct ConnectedRank {
  Dev& dev;
  dhp::Comm<Dev> world;
  dhp::Deadlines* deadlines;
  bool& left;  ///< set if ranks that were asked to stop ended before the first step
};

struct TrainingSetup : PlannedTraining {
  ConnectedRank* met = nullptr;  ///< null: run_training starts the ranks
  AnyBatcher held_out{};
  /// Describes the whole model; each rank keeps its part.
  std::function<dhp::Model<Dev>(dhp::ModelBuilder<Dev>&)> make_model{};
  /// Returns an evaluation's measures from the terms of the model's loss.
  std::function<Measures(const std::vector<dhp::LossTerm>&)> measures{};
  /// Returns measures from predictions, one array for each held-out micro-batch; without arrays all values are 0.
  std::function<Measures(const std::vector<dhp::HostArray>&)> predicted_measures{};
  /// Returns the multiplications and additions in products and convolutions of a forward pass, without padding.
  std::function<double(const dhp::MicroBatch<Dev>&)> forward_flop{};
  /// Small files that belong to the model, by name: saved in each checkpoint, and exported.
  std::map<std::string, std::string> files{};
  /// Returns a sentence for each part of the model that the device's libraries do not support.
  std::function<std::vector<std::string>(Dev&, const RunOptions&)> shortfalls{};
};

/// Prints the data's description and returns the setup for training the model that describe(build, config) returns.
/// Keeps a reference to the config.
[[nodiscard]] TrainingSetup setup_of(const RunOptions& options, ConnectedRank* met,
                                     const TrainerData& data, const auto& config, auto describe) {
  if (options.prints()) {
    std::fprintf(stderr, "%s\n", data.description.c_str());
    for (const auto& warning : data.warnings)
      std::fprintf(stderr, "warning: %s\n", warning.c_str());
  }
  TrainingSetup result{planned_of(options, data, config, describe), met, data.held_out};
  result.make_model = [&config, describe](auto& build) { return describe(build, config); };
  result.files = data.files;
  return result;
}

/// Returns the shortfalls of TrainingSetup for attention, on one tensor rank. Keeps a reference to the config.
[[nodiscard]] auto attention_shortfalls_of(const auto& config, int key_heads, bool causal) {
  return [&config, key_heads, causal](auto& dev, const RunOptions& run) {
    const int ranks = run.layout.tensor;
    if constexpr (requires {
                    attention_shortfalls(dev, run.store.compute, run.micro_batch,
                                         config.sequence_length, ranks, config.hidden,
                                         config.dropout, key_heads, causal);
                  })
      return attention_shortfalls(dev, run.store.compute, run.micro_batch, config.sequence_length,
                                  config.heads / ranks, config.hidden / ranks, config.dropout,
                                  key_heads / ranks, causal);
    else return std::vector<std::string>();
  };
}

/// Does the work of run_trainer() after parse(). exit_status: set if the command line ends the program.
[[nodiscard]] int run_with_options(const RunOptions& options, std::optional<int> exit_status,
                                   const std::function<int(ConnectedRank* met)>& load_and_train);
/// Runs a trainer. parse() reads the options. train(options, met) reads data, calls run_training and returns its exit
/// status. Ranks that are processes connect before that, so that all get the error immediately if one cannot read its
/// data; for other ranks `met` is null. Returns the exit status.
[[nodiscard]] int run_trainer(auto parse, auto train) {
  std::shared_ptr<Stopping> stopping;  // signals may come while options are read
  const auto listen = [&] { return stopping = std::make_shared<Stopping>(), 0; };
  if (const int failed = exit_status_of(listen); failed != 0) return failed;
  auto parsed = parse();
  parsed.options.run.stopping = stopping;
  return run_with_options(parsed.options.run, parsed.exit_status,
                          [&](ConnectedRank* met) { return train(parsed.options, met); });
}

/// Trains on options.layout.size() ranks. Throws Error with the first failing rank's message. Returns the exit status.
[[nodiscard]] int run_training(const TrainingSetup& setup);

}  // namespace examples
