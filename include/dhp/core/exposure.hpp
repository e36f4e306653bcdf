// Exposed communication: the fraction of step time in which a rank waits for communication, computed from a trace.
#pragma once

#include <dhp/core/trace.hpp>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace dhp {

/// The time that training steps spend waiting for communication.
struct Exposure {
  int steps = 0;
  double steps_s = 0;                          ///< total time of all steps
  double exposed_s = 0;                        ///< part of steps_s spent in waits
  std::map<std::string, double> exposed_by{};  ///< seconds by call: "all_reduce at reducer.hpp:45"
  [[nodiscard]] double share() const { return steps_s > 0 ? exposed_s / steps_s : 0; }
};

/// Computes the exposed communication of a trace. Overlapping waits count once; waits outside a step do not count.
[[nodiscard]] inline Exposure exposure_of(const Trace& trace) {
  struct Interval {
    double start_s, end_s;
    const TraceSpan* span;
  };
  const auto spans = trace.spans();
  std::vector<Interval> steps, waits;
  for (const auto& span : spans)
    if (span.kind == TraceKind::step || span.kind == TraceKind::wait)
      (span.kind == TraceKind::step ? steps : waits)
          .push_back({span.start.seconds(), span.end.seconds(), &span});
  const auto by_start = [](const Interval& a, const Interval& b) { return a.start_s < b.start_s; };
  std::stable_sort(steps.begin(), steps.end(), by_start);
  std::stable_sort(waits.begin(), waits.end(), by_start);
  Exposure found;
  auto wait = waits.begin();
  double counted_s = 0;  // end of the last counted wait
  for (const auto& step : steps) {
    ++found.steps;
    found.steps_s += step.end_s - step.start_s;
    for (; wait != waits.end() && wait->start_s < step.end_s; ++wait) {
      const double from_s = std::max({wait->start_s, step.start_s, counted_s});
      const double to_s = std::min(wait->end_s, step.end_s);
      if (to_s <= from_s) continue;
      counted_s = to_s;
      found.exposed_s += to_s - from_s;
      found.exposed_by[concat(wait->span->name, " at ", wait->span->where)] += to_s - from_s;
    }
  }
  return found;
}

}  // namespace dhp
