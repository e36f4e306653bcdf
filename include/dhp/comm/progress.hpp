// Progress: runs collectives on a thread of its own, in the order of their issue, so that they overlap with
// what the rank does meanwhile. It works on a communicator that it splits off for itself: nothing else
// can come in between. A device whose collectives run by themselves needs that communicator, but no thread.
#pragma once

#include <dhp/comm/comm.hpp>

#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace dhp {

/// Buffers must stay where they are, and be left alone, until the event is done. A collective that fails
/// says so where its event is waited for.
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
  /// Finishes what was issued. Where an exception is under way there is no sense in that, and the other
  /// ranks may never come: then it ends the world.
  ~Progress() {
    if (!state_) return;
    const bool failing = std::uncaught_exceptions() > state_->exceptions;
    {
      const std::lock_guard lock(state_->mutex);
      state_->stop = true;
      state_->drop = failing;
    }
    state_->changed.notify_one();
    if (failing && state_->busy()) state_->abandon();
    state_->thread.join();
  }

  [[nodiscard]] Event<Dev> all_reduce(Dev& dev, View<Dev> buffer, Reduce reduce = Reduce::sum,
                                      CallSite where = CallSite::current()) {
    return issue({Operation::all_reduce, &dev, buffer, buffer, reduce, 0, where, {}});
  }
  [[nodiscard]] Event<Dev> reduce_scatter(Dev& dev, ConstView<Dev> in, View<Dev> out,
                                          CallSite where = CallSite::current()) {
    return issue({Operation::reduce_scatter, &dev, in, out, Reduce::sum, 0, where, {}});
  }
  [[nodiscard]] Event<Dev> all_gather(Dev& dev, ConstView<Dev> in, View<Dev> out,
                                      CallSite where = CallSite::current()) {
    return issue({Operation::all_gather, &dev, in, out, Reduce::sum, 0, where, {}});
  }
  [[nodiscard]] Event<Dev> broadcast(Dev& dev, View<Dev> buffer, int root,
                                     CallSite where = CallSite::current()) {
    return issue({Operation::broadcast, &dev, buffer, buffer, Reduce::sum, root, where, {}});
  }
  [[nodiscard]] Event<Dev> all_to_all(Dev& dev, ConstView<Dev> in, View<Dev> out,
                                      CallSite where = CallSite::current()) {
    return issue({Operation::all_to_all, &dev, in, out, Reduce::sum, 0, where, {}});
  }

 private:
  enum class Operation { all_reduce, reduce_scatter, all_gather, broadcast, all_to_all };
  [[nodiscard]] static const char* name_of(Operation operation) {
    switch (operation) {
      case Operation::all_reduce: return "all_reduce";
      case Operation::reduce_scatter: return "reduce_scatter";
      case Operation::all_gather: return "all_gather";
      case Operation::broadcast: return "broadcast";
      case Operation::all_to_all: return "all_to_all";
    }
    return "?";
  }
  struct Job {
    Operation operation;
    Dev* dev;
    ConstView<Dev> in;
    View<Dev> out;
    Reduce reduce;
    int root;
    CallSite where;
    Event<Dev> event;
  };

  Event<Dev> issue(Job job) {
    auto event = Event<Dev>::pending(name_of(job.operation), job.where);
    job.event = event;
    {
      const std::lock_guard lock(state_->mutex);
      state_->jobs.push_back(std::move(job));
    }
    state_->changed.notify_one();
    return event;
  }

  struct State {
    // Jobs stay in the queue until they are done.
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
          if (dropped) throw Error("the rank ended before this collective", job.where);
          run(job).wait(*job.dev);
        } catch (...) {
          error = std::current_exception();
        }
        job.event.complete(error);
        lock.lock();
        jobs.pop_front();
      }
    }
    Event<Dev> run(const Job& job) {
      switch (job.operation) {
        case Operation::all_reduce:
          return comm.all_reduce(*job.dev, job.out, job.reduce, job.where);
        case Operation::reduce_scatter:
          return comm.reduce_scatter(*job.dev, job.in, job.out, job.where);
        case Operation::all_gather: return comm.all_gather(*job.dev, job.in, job.out, job.where);
        case Operation::broadcast: return comm.broadcast(*job.dev, job.out, job.root, job.where);
        case Operation::all_to_all: return comm.all_to_all(*job.dev, job.in, job.out, job.where);
      }
      return {};
    }
    [[nodiscard]] bool busy() {
      const std::lock_guard lock(mutex);
      return !jobs.empty();
    }
    void abandon() noexcept {
      try {
        if (comm.size() > 1) comm.abort("a rank failed while its collectives were under way");
      } catch (...) {  // what is under way says more
      }
    }

    Comm<Dev> comm;
    std::thread thread;
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Job> jobs;
    bool stop = false;
    bool drop = false;  // do not run what is left
    int exceptions = std::uncaught_exceptions();
  };
  std::unique_ptr<State> state_;
};

/// On a device that works by itself a collective overlaps with whatever is issued until its event is waited
/// for: the communicator has a stream of its own.
template <class Dev>
  requires(!Dev::host_accessible)
class Progress<Dev> {
 public:
  /// Collective over the group.
  explicit Progress(Comm<Dev>& group, CallSite where = CallSite::current())
      : comm_(group.split(0, group.rank(), where)) {}

  [[nodiscard]] Event<Dev> all_reduce(Dev& dev, View<Dev> buffer, Reduce reduce = Reduce::sum,
                                      CallSite where = CallSite::current()) {
    return comm_.all_reduce(dev, buffer, reduce, where);
  }
  [[nodiscard]] Event<Dev> reduce_scatter(Dev& dev, ConstView<Dev> in, View<Dev> out,
                                          CallSite where = CallSite::current()) {
    return comm_.reduce_scatter(dev, in, out, where);
  }
  [[nodiscard]] Event<Dev> all_gather(Dev& dev, ConstView<Dev> in, View<Dev> out,
                                      CallSite where = CallSite::current()) {
    return comm_.all_gather(dev, in, out, where);
  }
  [[nodiscard]] Event<Dev> broadcast(Dev& dev, View<Dev> buffer, int root,
                                     CallSite where = CallSite::current()) {
    return comm_.broadcast(dev, buffer, root, where);
  }
  [[nodiscard]] Event<Dev> all_to_all(Dev& dev, ConstView<Dev> in, View<Dev> out,
                                      CallSite where = CallSite::current()) {
    return comm_.all_to_all(dev, in, out, where);
  }

 private:
  Comm<Dev> comm_;
};

}  // namespace dhp
