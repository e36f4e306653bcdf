// Event: a collective under way, cheap to copy. A wait throws its failure. On a device that works by itself the device
// waits, not the host: the rank's work after wait() has the result, on every device.
#pragma once

#include <dhp/device/device.hpp>

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <source_location>
#include <utility>

namespace dhp {

/// Of a device whose work the host does itself.
template <class Dev>
class Event {
 public:
  Event() = default;  ///< done already

  /// An event that a progress thread completes: of this operation, called at this place.
  [[nodiscard]] static Event pending(const char* operation = "collective",
                                     std::source_location where = std::source_location::current()) {
    Event event;
    event.state_ = std::make_shared<State>();
    event.state_->operation = operation;
    event.state_->where = where;
    return event;
  }
  /// By whoever made it pending: it is done, or has failed with `error`.
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
  /// The host waits; rethrows what ended the collective.
  void wait() const {
    if (!state_) return;
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [this] { return state_->done; });
    if (state_->error) std::rethrow_exception(state_->error);
  }
  /// Work issued on `dev` from now on comes after the collective: here that is wait(), which the device's trace and its
  /// clock of waits show.
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

/// Of a device that works by itself: a collective is work of its communicator's stream, and no wait blocks the host. A
/// collective that fails after its wait is reported by the next call of a communicator of its world.
template <class Dev>
  requires works_by_itself<Dev>
class Event<Dev> {
 public:
  class Work {
   public:
    virtual ~Work() = default;
    [[nodiscard]] virtual bool done() const = 0;
    /// Orders what is issued from now on after the collective: on the device it was issued for, or another.
    virtual void order() const = 0;
    virtual void order(Dev& dev) const = 0;
  };

  Event() = default;  ///< done already
  explicit Event(std::shared_ptr<const Work> work) : work_(std::move(work)) {}

  [[nodiscard]] bool done() const { return !work_ || work_->done(); }
  /// Work issued from now on, on the device that the collective was issued for, comes after it.
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
