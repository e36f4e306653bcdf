// TraceReport: the output of --trace, a file with the timeline of every rank, and at the end a few lines on how long
// steps waited for communication. The file has Chrome's trace format ("Trace Event Format", Google 2016), which
// ui.perfetto.dev and chrome://tracing show. Each rank is a process, with a row for its work and one for each of its
// communicators. Needs nlohmann/json.
#pragma once

#include <dhp/comm/comm.hpp>
#include <dhp/comm/gather.hpp>
#include <dhp/comm/rendezvous/address.hpp>
#include <dhp/core/exposure.hpp>
#include <dhp/core/open_file.hpp>
#include <dhp/core/trace.hpp>
#include <dhp/tensor/tensor.hpp>

#include "progress.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace examples {

/// The difference between one rank's clock and rank 0's.
struct ClockOffset {
  double ahead_s = 0;       ///< how far this clock is ahead of rank 0's
  double round_trip_s = 0;  ///< the shortest round trip; ahead_s is off by at most half of it
};

/// Measures how far this rank's clock is ahead of rank 0's. now(): seconds of a clock with the same rate on all ranks.
/// The shortest of several round trips counts: rank 0's answer belongs to its middle (RFC 5905, section 8). Collective.
template <class Dev, class Now>
[[nodiscard]] ClockOffset clock_offset(Dev& dev, dhp::Comm<Dev>& comm, Now now,
                                       dhp::CallSite where = dhp::CallSite::current()) {
  constexpr int trips = 8;
  const auto asked = dhp::Tensor<Dev>::zeros(dev, dhp::DType::f64, dhp::Shape{1});
  auto message = dhp::Tensor<Dev>::zeros(dev, dhp::DType::f64, dhp::Shape{1});
  ClockOffset best;
  for (int rank = 1; rank < comm.size(); ++rank)
    for (int trip = 0; trip < trips; ++trip)
      if (comm.rank() == 0) {
        comm.recv(dev, message.mut(), rank, where);
        dev.synchronize();
        auto answer = dhp::Tensor<Dev>::from_host(dev, dhp::Shape{1}, std::vector<double>{now()});
        comm.send(dev, std::move(answer), rank, where);
      } else if (comm.rank() == rank) {
        const double start_s = now();
        comm.send(dev, asked.share(), 0, where);
        comm.recv(dev, message.mut(), 0, where);
        const double zero_s = message.template to_host<double>(dev)[0];
        const double end_s = now();
        if (trip == 0 || end_s - start_s < best.round_trip_s)
          best = {(start_s + end_s) / 2 - zero_s, end_s - start_s};
      }
  return best;
}

/// Returns the spans of one rank as JSON objects, each after a comma and a line break.
[[nodiscard]] inline std::string trace_events(const dhp::Trace& trace, int rank,
                                              const std::string& name, double offset_s) {
  using json = nlohmann::ordered_json;
  std::string text;
  const auto put = [&](const json& event) {
    text += ",\n" + event.dump(-1, ' ', false, json::error_handler_t::replace);
  };
  const auto add_metadata = [&](const char* what, int track, const char* key, const json& value) {
    put({{"ph", "M"}, {"name", what}, {"pid", rank}, {"tid", track}, {"args", {{key, value}}}});
  };
  const auto microseconds = [](double s) { return std::round(s * 1e9) / 1e3; };
  add_metadata("process_name", 0, "name",
               dhp::concat("rank ", rank, name.empty() ? "" : ", ", name));
  add_metadata("process_sort_index", 0, "sort_index", rank);
  add_metadata("thread_name", 0, "name", "work");
  const auto tracks = trace.tracks();
  for (std::size_t track = 0; track < tracks.size(); ++track)
    add_metadata("thread_name", static_cast<int>(track) + 1, "name",
                 "communication, " + tracks[track]);
  auto spans = trace.spans();
  std::ranges::stable_sort(spans, {}, [](const auto& span) { return span.start.seconds(); });
  // A communicator runs its calls in sequence, so a call begins after the previous one has ended.
  std::vector<double> busy_until_s(tracks.size(), 0);
  for (const auto& span : spans) {
    const bool communicates = span.kind == dhp::TraceKind::communication;
    double start_s = span.start.seconds();
    const double end_s = span.end.seconds();
    if (communicates) {
      auto& busy_s = busy_until_s[static_cast<std::size_t>(span.track)];
      start_s = std::max(start_s, busy_s);
      busy_s = std::max(busy_s, end_s);
    }
    const bool waits = span.kind == dhp::TraceKind::wait;
    json event{{"ph", "X"},
               {"name", waits ? "waits for " + span.name : span.name},
               {"cat", waits          ? "exposed"
                       : communicates ? "communication"
                                      : "work"},
               {"pid", rank},
               {"tid", communicates ? span.track + 1 : 0},
               {"ts", microseconds(start_s - offset_s)},
               {"dur", microseconds(std::max(0.0, end_s - start_s))}};
    if (communicates) event["args"] = {{"bytes", span.bytes}, {"at", dhp::to_text(span.where)}};
    if (waits) event["args"] = {{"at", dhp::to_text(span.where)}};
    put(event);
  }
  return text;
}

/// Sends the text of every rank to rank 0, which calls take(text) for each, in the order of the ranks.
template <class Dev, class Take>
void collect_text(Dev& dev, dhp::Comm<Dev>& comm, const std::string& text, Take take) {
  using dhp::DType, dhp::Shape, dhp::Tensor;
  if (comm.rank() != 0) {
    comm.send(dev, Tensor<Dev>::from_host(dev, Shape{1}, std::vector{std::ssize(text)}), 0);
    const std::vector<std::uint8_t> bytes(text.begin(), text.end());
    comm.send(dev, Tensor<Dev>::from_host(dev, Shape{std::ssize(text)}, bytes), 0);
    return;
  }
  take(text);
  auto size = Tensor<Dev>::zeros(dev, DType::i64, Shape{1});
  for (int rank = 1; rank < comm.size(); ++rank) {
    comm.recv(dev, size.mut(), rank);
    Tensor<Dev> bytes(dev, DType::u8, Shape{size.template to_host<std::int64_t>(dev)[0]});
    comm.recv(dev, bytes.mut(), rank);
    const auto found = bytes.template to_host<std::uint8_t>(dev);
    take(std::string(found.begin(), found.end()));
  }
}

/// Writes the traces of all ranks to rank 0's path. Collective. name: this rank's place. offset_s: how far its trace's
/// clock is ahead of rank 0's (clock_offset).
template <class Dev>
void write_trace(Dev& dev, dhp::Comm<Dev> comm, const dhp::Trace& trace, const std::string& path,
                 const std::string& name, double offset_s) {
  const auto events = trace_events(trace, comm.rank(), name, offset_s);
  if (comm.rank() != 0) return collect_text(dev, comm, events, [](const std::string&) {});
  dhp::replace_file(path, [&](dhp::OpenFile& file) {
    file.write("{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n");
    bool first = true;
    collect_text(dev, comm, events, [&](const std::string& of_rank) {
      file.write(first ? of_rank.substr(2) : of_rank);  // a list does not begin with a comma
      first = false;
    });
    file.write("\n]}\n");
  });
}

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
  double end(auto log) {
    const auto& trace = *dev_.trace();
    const auto exposure = dhp::exposure_of(trace);
    const auto shares = dhp::gather(dev_, world_, {exposure.share()});
    write_trace(dev_, world_, trace, path_, dhp::detail::host_name(), clock_offset_s_);
    const auto least = std::ranges::min_element(shares), most = std::ranges::max_element(shares);
    const double mean =
        std::accumulate(shares.begin(), shares.end(), 0.0) / static_cast<double>(shares.size());
    if (world_.rank() != 0) return mean;
    log(dhp::concat("exposed communication: ", percent(mean), " of a step, from ", percent(*least),
                    " on rank ", least - shares.begin(), " to ", percent(*most), " on rank ",
                    most - shares.begin(), "; the trace ", path_, " has ",
                    dhp::detail::pluralize(exposure.steps, "step")));
    for (const auto& [call, seconds] : largest(exposure.exposed_by))
      log(dhp::concat("  rank 0 waits ", percent(seconds / exposure.steps_s), " for ", call));
    if (trace.left_out() > 0)
      log(dhp::concat("  the trace was full then: ", trace.left_out(),
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
    std::ranges::stable_sort(sorted, std::greater<>(), &std::pair<std::string, double>::second);
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
