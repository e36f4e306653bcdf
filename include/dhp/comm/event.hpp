// Event is a pending collective, cheap to copy. After wait(), later work of this rank sees the result; wait() throws
// the collective's error. On a device with a stream, only the stream waits, and the host continues.
#pragma once

#include <dhp/device/device.hpp>

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <source_location>
#include <utility>

namespace dhp {

/// Event of a device whose collectives run on the host.
template <class Dev>
class Event {
 public:
  Event() = default;  ///< an event that is already done

  /// Returns an event that a progress thread completes; `operation` and `where` describe the collective in traces.
  [[nodiscard]] static Event pending(const char* operation = "collective",
                                     std::source_location where = std::source_location::current()) {
    Event event;
    event.state_ = std::make_shared<State>();
    event.state_->operation = operation;
    event.state_->where = where;
    return event;
  }
  /// Marks the event as done, or as failed with `error`. The creator of the event calls this.
  void complete(std::exception_ptr error = nullptr) {
    if (!state_) return;
    {
      const std::lock_guard lock(state_->mutex);
      state_->done = true;
      state_->error = error;
    }
    state_->changed.notify_all();
  }

  [[nodiscard]] bool done() const {
    if (!state_) return true;
    const std::lock_guard lock(state_->mutex);
    return state_->done;
  }
  /// Blocks the host until the collective is done; rethrows its failure.
  void wait() const {
    if (!state_) return;
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [this] { return state_->done; });
    if (state_->error) std::rethrow_exception(state_->error);
  }
  /// Orders later work on `dev` after the collective: calls wait(), and records it in the trace and the wait clock.
  void wait(Dev& dev) const {
    if (!state_) return;
    const auto scope = dev.scope(state_->operation, state_->where);
    if constexpr (requires { dev.waiting(); }) {
      const auto waiting = dev.waiting();
      wait();
    } else {
      wait();
    }
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    std::exception_ptr error;
    const char* operation = "";
    std::source_location where;
  };
  std::shared_ptr<State> state_;
};

/// Event of a device with streams: the collective runs on its communicator's stream, and no wait blocks the host. If
/// the collective fails after the wait, the next call of any communicator of the world throws.
template <class Dev>
  requires detail::is_asynchronous<Dev>
class Event<Dev> {
 public:
  class Work {
   public:
    virtual ~Work() = default;
    [[nodiscard]] virtual bool done() const = 0;
    /// Makes later work of `dev`, or by default of the collective's own device, wait for the collective.
    virtual void order() const = 0;
    virtual void order(Dev& dev) const = 0;
  };

  Event() = default;  ///< an event that is already done
  explicit Event(std::shared_ptr<const Work> work) : work_(std::move(work)) {}

  [[nodiscard]] bool done() const { return !work_ || work_->done(); }
  /// Orders later work of the collective's own device after the collective.
  void wait() const {
    if (work_) work_->order();
  }
  void wait(Dev& dev) const {
    if (work_) work_->order(dev);
  }

 private:
  std::shared_ptr<const Work> work_;
};

}  // namespace dhp
