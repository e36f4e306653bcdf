// Trace: a timeline of one rank's computation, communication and waits.
#pragma once

#include <dhp/core/text.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <source_location>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace dhp {

/// A time in seconds since the start of the trace. A device's time may become known only later.
class TraceMoment {
 public:
  TraceMoment(double seconds = 0) : seconds_(seconds) {}
  /// later: blocks until the device has reached this point in time, then returns the seconds.
  explicit TraceMoment(std::function<double()> later) : later_(std::move(later)) {}
  [[nodiscard]] double seconds() const { return later_ ? later_() : seconds_; }
  /// Waits until the time is known, then frees the device's event.
  void resolve() {
    if (later_) seconds_ = std::exchange(later_, nullptr)();
  }

 private:
  double seconds_ = 0;
  std::function<double()> later_;
};

enum class TraceKind {
  step,           ///< one training step, on the compute track
  work,           ///< work inside another span, on the compute track
  wait,           ///< a wait of the compute track for communication
  communication,  ///< a collective or message, on the track of its communicator
};

struct TraceSpan {
  TraceKind kind = TraceKind::work;
  std::string name;
  TraceMoment start{}, end{};
  int track = 0;                 ///< communication only: index of the communicator
  std::int64_t bytes = 0;        ///< communication only: number of bytes
  std::source_location where{};  ///< communication and waits only: location of the call
  [[nodiscard]] double duration_s() const { return end.seconds() - start.seconds(); }
};

/// The trace of one rank with all its threads. The constructing thread is the compute thread.
class Trace : detail::NonCopyable {
 public:
  /// capacity: the number of spans to keep; later spans are only counted.
  explicit Trace(std::size_t capacity = std::size_t{1} << 18) : capacity_(capacity) {}
  virtual ~Trace() = default;

  [[nodiscard]] double now_s() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  /// Returns true on the compute thread.
  [[nodiscard]] bool at_work() const { return std::this_thread::get_id() == worker_; }
  /// Adds a communicator's track and returns its index, for TraceSpan::track.
  [[nodiscard]] int add_track(std::string name) {
    const std::lock_guard lock(mutex_);
    tracks_.push_back(std::move(name));
    return static_cast<int>(tracks_.size()) - 1;
  }
  /// Virtual, so that only programs that construct a Trace compile add().
  virtual void add(TraceSpan span) {
    const std::lock_guard lock(mutex_);
    if (spans_.size() < capacity_) spans_.push_back(std::move(span));
    else ++left_out_;
  }

  [[nodiscard]] std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return spans_.size();
  }
  /// Resolves the times of the first `count` spans, waiting for the device if needed.
  void resolve(std::size_t count) {
    const std::lock_guard lock(mutex_);
    for (; resolved_ < std::min(count, spans_.size()); ++resolved_) {
      spans_[resolved_].start.resolve();
      spans_[resolved_].end.resolve();
    }
  }
  [[nodiscard]] std::vector<TraceSpan> spans() const {
    const std::lock_guard lock(mutex_);
    return spans_;
  }
  [[nodiscard]] std::vector<std::string> tracks() const {
    const std::lock_guard lock(mutex_);
    return tracks_;
  }
  /// Returns the number of dropped spans.
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
  std::vector<std::string> tracks_;
  std::size_t resolved_ = 0, left_out_ = 0;
};

/// Records a span until the end of the scope, if the device has a trace.
template <class Dev>
class TraceScope : detail::NonCopyable {
 public:
  [[gnu::noinline]] TraceScope(Dev& dev, const std::string& name, TraceKind kind = TraceKind::work)
      : dev_(dev.trace() ? &dev : nullptr) {
    if (dev_ != nullptr) span_ = {.kind = kind, .name = name, .start = dev.moment()};
  }
  [[gnu::noinline]] TraceScope(Dev& dev, const char* name, std::int64_t number,
                               TraceKind kind = TraceKind::work)
      : TraceScope(dev, dev.trace() ? concat(name, ' ', number) : std::string(), kind) {}
  /// Records a wait for the call at `where`.
  [[gnu::noinline]] TraceScope(Dev& dev, const char* name, const std::source_location& where)
      : dev_(dev.trace() ? &dev : nullptr) {
    if (dev_ == nullptr) return;
    span_ = {.kind = TraceKind::wait, .name = name, .start = dev.moment()};
    // The initializer leaves out `where`: nvcc miscounts designated initializers with gaps.
    span_.where = where;
  }
  [[gnu::noinline]] ~TraceScope() {
    if (dev_ == nullptr) return;
    try {
      span_.end = dev_->moment();
      dev_->trace()->add(std::move(span_));
    } catch (const std::exception&) {  // the span is dropped
    }
  }

 private:
  Dev* dev_;
  TraceSpan span_;
};

}  // namespace dhp
