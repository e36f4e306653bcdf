// The output of --trace: a file with the timeline of every rank, and at the end a few lines on how long steps waited
// for communication.
#pragma once

#include <dhp/comm/gather.hpp>
#include <dhp/comm/rendezvous/address.hpp>
#include <dhp/core/exposure.hpp>

#include "progress.hpp"
#include "trace_file.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace examples {

/// Writes the trace. On a device without a trace it does nothing, and end() must not be called.
template <class Dev>
class TraceReport {
 public:
  /// Collective. Throws immediately if the file cannot be written; until the end it stays as it is.
  TraceReport(Dev& dev, dhp::Comm<Dev> world, std::string path)
      : dev_(dev), world_(std::move(world)), path_(std::move(path)) {
    if (!dev_.trace()) return;
    if (world_.rank() == 0) check_writable();
    clock_offset_s_ = clock_offset(dev_, world_, [&] { return dev_.trace()->now_s(); }).ahead_s;
  }

  /// Notes that a step has been issued; the device may still be busy with it.
  void step_started() {
    if (dev_.trace()) under_way_ = dev_.trace()->size();
  }
  /// Notes that the device has finished that step.
  void step_done() {
    if (dev_.trace()) dev_.trace()->resolve(under_way_);
  }

  /// Writes the file; rank 0 prints a summary of it. Returns the exposed share of a step, the mean over the ranks.
  /// Collective.
  double end(auto say) {
    const auto& trace = *dev_.trace();
    const auto exposure = dhp::exposure_of(trace);
    const auto shares = dhp::gather(dev_, world_, {exposure.share()});
    write_trace(dev_, world_, trace, path_, dhp::detail::host_name(), clock_offset_s_);
    const auto least = std::min_element(shares.begin(), shares.end());
    const auto most = std::max_element(shares.begin(), shares.end());
    const double mean =
        std::accumulate(shares.begin(), shares.end(), 0.0) / static_cast<double>(shares.size());
    if (world_.rank() != 0) return mean;
    say(dhp::concat("exposed communication: ", percent(mean), " of a step, from ", percent(*least),
                    " on rank ", least - shares.begin(), " to ", percent(*most), " on rank ",
                    most - shares.begin(), "; ", exposure.steps, " steps are in the trace ",
                    path_));
    for (const auto& [call, seconds] : largest(exposure.exposed_by))
      say(dhp::concat("  rank 0 waits ", percent(seconds / exposure.steps_s), " for ", call));
    if (trace.left_out() > 0)
      say(dhp::concat("  the trace was full then: ", trace.left_out(),
                      " later spans of rank 0 are not in it"));
    return mean;
  }

 private:
  void check_writable() const {
    struct Opened {};
    try {
      dhp::replace_file(path_, [](dhp::OpenFile&) { throw Opened(); });
    } catch (const Opened&) {  // nothing is replaced
    }
  }
  [[nodiscard]] static std::string percent(double share) {
    return short_number(share * 100) + " %";
  }
  /// Returns the largest few, the largest first.
  [[nodiscard]] static std::vector<std::pair<std::string, double>> largest(
      const std::map<std::string, double>& seconds) {
    std::vector<std::pair<std::string, double>> sorted(seconds.begin(), seconds.end());
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    if (sorted.size() > 5) sorted.resize(5);
    return sorted;
  }

  Dev& dev_;
  dhp::Comm<Dev> world_;
  std::string path_;
  double clock_offset_s_ = 0;  // offset of the trace's clock from rank 0's
  std::size_t under_way_ = 0;  // spans up to the end of the newest issued step
};

}  // namespace examples
