// What a run prints before its first step: its layout, warnings, memory, and how its ranks are connected.
#pragma once

#include <dhp/comm/rendezvous/address.hpp>
#include <dhp/train/training_run.hpp>

#include "../report/memory.hpp"
#include "../report/transport_report.hpp"
#include "training.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace examples {

/// Prints layout and data, warnings about them, and gaps of the device's libraries. total: steps of the run.
inline void announce_work(Dev& dev, const TrainingSetup& setup, dhp::TrainingRun<Dev>& run,
                          std::int64_t total, RunReport& report) {
  const auto& options = setup.options;
  report.say("layout ", to_text(run.mesh()), ", schedule ", options.pipeline.schedule.name(), ", ",
             precision_name(options.precision), ", ", setup.train.size(), " training samples, ",
             total, total == 1 ? " step of " : " steps of ", options.global_batch);
  for (const auto& doubt : options.doubts(total)) report.say("warning: ", doubt);
  if (setup.shortfalls)
    for (const auto& lacking : setup.shortfalls(dev, options)) report.say("warning: ", lacking);
}
/// Prints the plan of a rank's memory, if there is one, and the cost of the copies of other replicas' shards.
inline void announce_memory(MemoryPlanner* planner, const MemoryLimit& limit,
                            dhp::TrainingRun<Dev>& run, RunReport& report) {
  if (planner != nullptr)
    for (const auto& line : planner->lines(limit)) report.say(line);
  auto& store = run.store();
  const auto elements = store.redundant_elements();
  if (elements == 0) return;
  const auto bytes = elements * dhp::size_of(store.accumulation());
  report.say(
      "copies of other replicas' shares: ", bytes_text(bytes * run.optimizer().state().size()),
      " of optimizer state on rank 0, ", bytes_text(bytes), " of gradients received in each step");
}
/// Measures the axes and prints them with the hosts; skips thread ranks unless --min-bandwidth is given. Collective.
inline void announce_transports(Dev& dev, const RunOptions& options, dhp::TrainingRun<Dev>& run,
                                RunReport& report) {
  if (run.mesh().world().size() == 1) return;
  if (!options.process() && options.min_bandwidth_gb_s == 0) return;
  // The messages take less memory than training needs beside its state.
  const auto bytes = std::clamp<std::size_t>(run.store().weight_bytes() / 4, 1 << 20, 8 << 20);
  const auto measured = measure_transports(dev, run.mesh(), dhp::detail::host_name(),
                                           static_cast<std::int64_t>(bytes));
  for (const auto& line : measured.lines()) report.say(line);
  measured.check_bandwidth(options.min_bandwidth_gb_s * 1e9);
}

}  // namespace examples
