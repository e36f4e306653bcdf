// Trace: what one rank did when, as spans in lanes: what it computed, what it communicated, and when its work stood
// still because of that. It says which share of a step communication was exposed, and is shown by what reads
// Chrome's trace format, Perfetto for one (comm/trace_file.hpp).
#pragma once

#include <dhp/core/text.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <source_location>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace dhp {

/// A point in time, in seconds since the trace was begun: known, or one that a device will have passed some day.
class TraceMoment {
 public:
  TraceMoment(double seconds = 0) : seconds_(seconds) {}
  /// later: gives the seconds, and waits until the device has come there.
  explicit TraceMoment(std::function<double()> later) : later_(std::move(later)) {}
  [[nodiscard]] double seconds() const { return later_ ? later_() : seconds_; }
  /// Asks the device, and lets go of what it keeps for that.
  void settle() {
    if (later_) seconds_ = std::exchange(later_, nullptr)();
  }

 private:
  double seconds_ = 0;
  std::function<double()> later_;
};

enum class TraceKind {
  step,           ///< a whole step of training; in the lane of work
  work,           ///< in the lane of work, spans inside of spans
  wait,           ///< in the lane of work: it stands still until a result of communication is there
  communication,  ///< in a lane of its communicator
};

struct TraceSpan {
  TraceKind kind = TraceKind::work;
  std::string name;
  TraceMoment start{};
  TraceMoment end{};
  int lane = 0;                  ///< of communication: which communicator, from 0
  std::int64_t bytes = 0;        ///< of communication
  std::source_location where{};  ///< of communication and of waits: the place of the call
  [[nodiscard]] double duration_s() const { return end.seconds() - start.seconds(); }
};

/// How long the work of steps stood still for communication.
struct Exposure {
  int steps = 0;
  double steps_s = 0;                          ///< all steps together
  double exposed_s = 0;                        ///< of that, in waits
  std::map<std::string, double> exposed_by{};  ///< seconds, by call: "all_reduce at reducer.hpp:45"
  [[nodiscard]] double share() const { return steps_s > 0 ? exposed_s / steps_s : 0; }
};

/// One rank's, begun by the thread that does the rank's work; its threads may share it.
class Trace {
 public:
  /// capacity: spans that are kept; those that come later are counted only.
  explicit Trace(std::size_t capacity = std::size_t{1} << 18) : capacity_(capacity) {}
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  [[nodiscard]] double now_s() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  /// Whether the calling thread is the one that does the rank's work.
  [[nodiscard]] bool at_work() const { return std::this_thread::get_id() == worker_; }
  /// A lane for one more communicator.
  [[nodiscard]] int add_lane(std::string name) {
    const std::lock_guard lock(mutex_);
    lanes_.push_back(std::move(name));
    return static_cast<int>(lanes_.size()) - 1;
  }
  void add(TraceSpan span) {
    const std::lock_guard lock(mutex_);
    if (spans_.size() < capacity_) spans_.push_back(std::move(span));
    else ++left_out_;
  }

  [[nodiscard]] std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return spans_.size();
  }
  /// Asks the device for the moments of the first `count` spans; waits for it where it has not come there.
  void settle(std::size_t count) {
    const std::lock_guard lock(mutex_);
    for (; settled_ < std::min(count, spans_.size()); ++settled_) {
      spans_[settled_].start.settle();
      spans_[settled_].end.settle();
    }
  }
  [[nodiscard]] std::vector<TraceSpan> spans() const {
    const std::lock_guard lock(mutex_);
    return spans_;
  }
  [[nodiscard]] std::vector<std::string> lanes() const {
    const std::lock_guard lock(mutex_);
    return lanes_;
  }
  /// Spans for which there was no room.
  [[nodiscard]] std::size_t left_out() const {
    const std::lock_guard lock(mutex_);
    return left_out_;
  }

 private:
  std::size_t capacity_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::thread::id worker_ = std::this_thread::get_id();
  mutable std::mutex mutex_;
  std::vector<TraceSpan> spans_;
  std::vector<std::string> lanes_;
  std::size_t settled_ = 0;
  std::size_t left_out_ = 0;
};

/// A span from here to the end of the scope, where the device has a trace.
template <class Dev>
class TraceScope {
 public:
  TraceScope(Dev& dev, const std::string& name, TraceKind kind = TraceKind::work)
      : dev_(dev.trace() ? &dev : nullptr) {
    if (dev_ != nullptr) span_ = {.kind = kind, .name = name, .start = dev.moment()};
  }
  TraceScope(Dev& dev, const char* name, std::int64_t number, TraceKind kind = TraceKind::work)
      : dev_(dev.trace() ? &dev : nullptr) {
    if (dev_ != nullptr)
      span_ = {.kind = kind, .name = concat(name, ' ', number), .start = dev.moment()};
  }
  /// Of a wait: for the call at this place.
  TraceScope(Dev& dev, const char* name, const std::source_location& where)
      : dev_(dev.trace() ? &dev : nullptr) {
    if (dev_ == nullptr) return;
    span_ = {.kind = TraceKind::wait, .name = name, .start = dev.moment()};
    span_.where = where;  // not above: nvcc loses count where fields between are left out
  }
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;
  ~TraceScope() {
    if (dev_ == nullptr) return;
    try {
      span_.end = dev_->moment();
      dev_->trace()->add(std::move(span_));
    } catch (const std::exception&) {  // then there is one span less
    }
  }

 private:
  Dev* dev_;
  TraceSpan span_;
};

/// Waits inside of waits, and inside of no step, count for nothing.
[[nodiscard]] inline Exposure exposure_of(const Trace& trace) {
  struct Piece {
    double start_s, end_s;
    const TraceSpan* span;
  };
  const auto spans = trace.spans();
  std::vector<Piece> steps, waits;
  for (const auto& span : spans)
    if (span.kind == TraceKind::step || span.kind == TraceKind::wait)
      (span.kind == TraceKind::step ? steps : waits)
          .push_back({span.start.seconds(), span.end.seconds(), &span});
  const auto by_start = [](const Piece& a, const Piece& b) { return a.start_s < b.start_s; };
  std::stable_sort(steps.begin(), steps.end(), by_start);
  std::stable_sort(waits.begin(), waits.end(), by_start);
  Exposure found;
  auto wait = waits.begin();
  double counted_s = 0;  // up to this point in time
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
