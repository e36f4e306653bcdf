// Progress: runs all-reduces on a thread of its own, in the order of their issue, so that they overlap with
// what the rank does meanwhile. It works on a communicator that it splits off for itself: nothing else
// can come in between.
#pragma once

#include <dhp/comm/comm.hpp>

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace dhp {

template <class Dev>
class Progress {
 public:
  /// Collective over the group.
  explicit Progress(Comm<Dev>& group, CallSite where = CallSite::current())
      : state_(std::make_unique<State>()) {
    state_->comm = group.split(0, group.rank(), where);
    state_->thread = std::thread([state = state_.get()] { state->work(); });
  }
  Progress(Progress&&) noexcept = default;
  Progress& operator=(Progress&&) = delete;
  /// Finishes what was issued.
  ~Progress() {
    if (!state_) return;
    {
      const std::lock_guard lock(state_->mutex);
      state_->stop = true;
    }
    state_->changed.notify_one();
    state_->thread.join();
  }

  /// The buffer must stay where it is, and be left alone, until the event is done.
  [[nodiscard]] Event<Dev> all_reduce(Dev& dev, View<Dev> buffer, Reduce reduce = Reduce::sum,
                                      CallSite where = CallSite::current()) {
    auto event = Event<Dev>::pending();
    {
      const std::lock_guard lock(state_->mutex);
      state_->jobs.push_back({&dev, buffer, reduce, where, event});
    }
    state_->changed.notify_one();
    return event;
  }

 private:
  struct Job {
    Dev* dev;
    View<Dev> buffer;
    Reduce reduce;
    CallSite where;
    Event<Dev> event;
  };
  struct State {
    void work() {
      for (;;) {
        std::unique_lock lock(mutex);
        changed.wait(lock, [this] { return stop || !jobs.empty(); });
        if (jobs.empty()) return;
        auto job = std::move(jobs.front());
        jobs.pop_front();
        lock.unlock();
        std::exception_ptr error;
        try {
          comm.all_reduce(*job.dev, job.buffer, job.reduce, job.where).wait();
        } catch (...) {
          error = std::current_exception();
        }
        job.event.complete(error);
      }
    }
    Comm<Dev> comm;
    std::thread thread;
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Job> jobs;
    bool stop = false;
  };
  std::unique_ptr<State> state_;
};

}  // namespace dhp
