// Progress starts collectives in issue order, on a thread and communicator of its own, so that they overlap with the
// rank's work. If the device runs collectives asynchronously, there is no such thread.
#pragma once

#include <dhp/comm/comm.hpp>

#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

namespace dhp {

/// The buffers of a collective must stay in place, unused, until its event is done. Event::wait() throws its error.
template <class Dev>
class Progress {
 public:
  /// Splits off a communicator. Collective over the group.
  explicit Progress(Comm<Dev>& group) : state_(std::make_unique<State>()) {
    state_->comm = group.split(0, group.rank());
    state_->thread = std::thread([state = state_.get()] { state->work(); });
  }
  Progress(Progress&&) noexcept = default;
  Progress& operator=(Progress&&) = delete;
  /// Finishes issued collectives. During an exception it ends the world instead, as other ranks may never arrive.
  ~Progress() {
    if (!state_) return;
    const bool failing = std::uncaught_exceptions() > state_->exceptions;
    bool busy = false;
    {
      const std::lock_guard lock(state_->mutex);
      state_->stop = true;
      state_->drop = failing;
      busy = !state_->jobs.empty();
    }
    state_->changed.notify_one();
    if (failing && busy) state_->abandon();
    state_->thread.join();
  }

  [[nodiscard]] Event<Dev> start(Dev& dev, const Collective<Dev>& collective) {
    auto event = Event<Dev>::pending(name_of(collective.call.kind), collective.call.where);
    {
      const std::lock_guard lock(state_->mutex);
      state_->jobs.push_back({&dev, collective, event});
    }
    state_->changed.notify_one();
    return event;
  }

 private:
  struct Job {
    Dev* dev;
    Collective<Dev> collective;
    Event<Dev> event;
  };

  struct State {
    // A job stays in the queue until its collective is done.
    void work() {
      std::unique_lock lock(mutex);
      for (;;) {
        changed.wait(lock, [this] { return stop || !jobs.empty(); });
        if (jobs.empty()) return;
        Job job = jobs.front();
        const bool dropped = drop;
        lock.unlock();
        std::exception_ptr error;
        try {
          if (dropped)
            throw Error("the rank ended before this collective", job.collective.call.where);
          comm.start(*job.dev, job.collective).wait(*job.dev);
        } catch (...) {
          error = std::current_exception();
        }
        job.event.complete(error);
        lock.lock();
        jobs.pop_front();
      }
    }
    void abandon() noexcept {
      try {
        if (comm.size() > 1) comm.abort("a rank failed while its collectives were under way");
      } catch (...) {  // the exception in flight says more
      }
    }

    Comm<Dev> comm;
    std::thread thread;
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Job> jobs;
    bool stop = false;
    bool drop = false;  // fail the remaining jobs instead of starting them
    int exceptions = std::uncaught_exceptions();
  };
  std::unique_ptr<State> state_;
};

template <class Dev>
  requires(!Dev::host_accessible)
class Progress<Dev> {
 public:
  /// Splits off a communicator. Collective over the group.
  explicit Progress(Comm<Dev>& group) : comm_(group.split(0, group.rank())) {}

  [[nodiscard]] Event<Dev> start(Dev& dev, const Collective<Dev>& collective) {
    return comm_.start(dev, collective);
  }

 private:
  Comm<Dev> comm_;
};

}  // namespace dhp
