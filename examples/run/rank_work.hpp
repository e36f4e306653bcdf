// RankWork: a rank's time, samples and energy, and their totals over all ranks.
#pragma once

#include <dhp/comm/gather.hpp>
#include <dhp/comm/rendezvous/address.hpp>

#include "../report/energy_meter.hpp"
#include "../report/run_summary.hpp"
#include "../report/stragglers.hpp"
#include "training.hpp"

#include <string>
#include <utility>
#include <vector>

namespace examples {

class RankWork {
 public:
  /// Keeps references to its arguments.
  RankWork(Dev& dev, const TrainingSetup& setup)
      : dev_(dev), setup_(setup), parts_(waits_of(dev)), energy_(pci_bus_id_of(dev)) {}

  [[nodiscard]] TimeParts& parts() { return parts_; }
  void step_done(const dhp::StepBatches<Dev>& mine) {
    done_.add(mine, setup_.forward_flop);
    in_period_ += static_cast<double>(mine.batches.size());
  }

  /// Returns, on all ranks, a sentence for each rank that has become slow. Only ranks that are processes are compared,
  /// since they may be on separate machines, and no GPUs, since the host does not see their waits. Collective.
  [[nodiscard]] std::vector<std::string> slow_ranks(dhp::Comm<Dev>& world) {
    const auto& options = setup_.options;
    if (on_gpu || world.size() == 1 || !options.process()) return {};
    const auto parts = parts_.seconds();
    const double own_s = seconds_in(parts, Part::compute) + seconds_in(parts, Part::data);
    const OwnWork mine{own_s - std::exchange(own_s_before_, own_s), std::exchange(in_period_, 0)};
    const auto work = dhp::detail::gather_values(dev_, world, mine);
    const auto slow = stragglers_.found(options.layout, work);
    if (slow.empty()) return {};
    const auto names = dhp::gather_texts(dev_, world, dhp::detail::process_name());
    std::vector<std::string> sentences;
    for (const auto rank : slow) {
      const auto at = static_cast<std::size_t>(rank);
      sentences.push_back(
          dhp::concat("rank ", rank, " (", names[at], ") is slow, and all wait for it: ",
                      short_number(1e3 * work[at].seconds_per_micro_batch()),
                      " ms of its own work for a micro-batch, where replicas usually need ",
                      short_number(1e3 * Stragglers::usual_s(options.layout, work, rank)), " ms"));
    }
    return sentences;
  }

  /// Returns the totals over all ranks, without the steps' numbers and values. Collective.
  [[nodiscard]] RunSummary summary(dhp::Mesh<Dev>& mesh) {
    const bool counts =
        mesh.tensor_index() == 0 && mesh.pipeline_index() == 0 && mesh.context_index() == 0;
    // With frozen parts the FLOP of a backward pass are unknown, so no FLOP are reported.
    const bool has_flop = counts && !setup_.options.tuning.freezes();
    const Share mine{parts_.seconds(), has_flop ? done_.forward_flop : 0, counts ? done_.tokens : 0,
                     energy_.joules().value_or(0)};
    RunSummary summary;
    summary.ranks = mesh.world().size();
    summary.samples = done_.samples;
    summary.sees_waits = !on_gpu;
    summary.peak_tflops = setup_.options.peak_tflops;
    for (const auto& share : dhp::detail::gather_values(dev_, mesh.world(), mine)) {
      for (std::size_t part = 0; part < share.seconds.size(); ++part)
        summary.seconds[part] += share.seconds[part] / summary.ranks;
      summary.forward_flop += share.forward_flop;
      summary.tokens += share.tokens;
      summary.energy_j += share.energy_j;
    }
    return summary;
  }

 private:
  /// A rank's share of the summary.
  struct Share {
    PartSeconds seconds;
    double forward_flop, tokens, energy_j;
  };

  Dev& dev_;
  const TrainingSetup& setup_;
  TimeParts parts_;
  EnergyMeter energy_;
  StepWork done_;
  Stragglers stragglers_;
  double in_period_ = 0;     // micro-batches of this period
  double own_s_before_ = 0;  // seconds of own work before this period
};

}  // namespace examples
