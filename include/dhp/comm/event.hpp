// Event: a collective under way, cheap to copy. Waiting for it is waiting for its result; its failure is thrown
// there, at every wait. An event that is nobody's is done already.
#pragma once

#include <dhp/device/device.hpp>

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>

namespace dhp {

template <class Dev>
class Event {
 public:
  Event() = default;  ///< done already

  /// An event that a progress thread completes.
  [[nodiscard]] static Event pending() {
    Event event;
    event.state_ = std::make_shared<State>();
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
  /// Work issued on `dev` from now on comes after the collective; on a host device that is wait().
  void wait(Dev&) const requires(Dev::host_accessible) { wait(); }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    std::exception_ptr error;
  };
  std::shared_ptr<State> state_;
};

}  // namespace dhp
