// The world of ranks that are threads of one process: who has failed or finished, who waits where. Waiting
// blocks and never spins (there are often more ranks than cores), and always ends: when any rank throws,
// when a rank that is waited for has finished, or when the time limit is reached.
#pragma once

#include <dhp/comm/communicator.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace dhp {

/// What other ranks end with when one has failed.
class Aborted : public Error {
 public:
  using Error::Error;
};

[[nodiscard]] inline std::string to_text(const CallSite& where) {
  const std::string_view file(where.file_name());
  return concat(file.substr(file.rfind('/') + 1), ":", where.line());
}

/// Shared by all ranks; one mutex guards everything that is not the payload of a collective.
class ThreadWorld {
 public:
  /// What a group's threads wait at; changes of one group wake nobody else.
  using WaitPoint = std::condition_variable;

  /// timeout_s: time limit of every wait, in seconds; 0: none.
  ThreadWorld(int ranks, double timeout_s)
      : timeout_s_(timeout_s), finished_(static_cast<std::size_t>(ranks)) {}

  [[nodiscard]] int ranks() const { return static_cast<int>(finished_.size()); }

  /// Ends all ranks with this message; the first one counts.
  void abort(const std::string& message) {
    const std::lock_guard lock(mutex_);
    abort_locked(message);
  }
  /// The rank's body has returned: who waits for it now, or will, waits in vain.
  void finish(int rank) {
    const std::lock_guard lock(mutex_);
    finished_[static_cast<std::size_t>(rank)] = true;
    wake_everyone();
  }

  /// Blocks until ready() holds, which is evaluated under the world's lock and may change state. `missing`
  /// lists, when asked, the world ranks that have yet to come.
  template <class Ready, class Missing>
  void wait(WaitPoint& point, int rank, const char* operation, CallSite where, Ready ready,
            Missing missing) {
    std::unique_lock lock(mutex_);
    throw_if_aborted();
    if (ready()) return;
    const auto call = calls_.insert(calls_.end(), Call{rank, operation, where, &point});
    const auto deadline =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(
                           std::chrono::duration<double>(timeout_s_ > 0 ? timeout_s_ : 1e8));
    for (;;) {
      if (aborted_) break;
      if (ready()) break;
      const std::vector<int> awaited = missing();
      for (const int other : awaited)
        if (finished_[static_cast<std::size_t>(other)]) {
          abort_locked(concat("rank ", rank, " waits in ", to_text(*call), " for rank ", other,
                              ", which has finished"));
          break;
        }
      if (aborted_) break;
      if (point.wait_until(lock, deadline) == std::cv_status::timeout && !ready())
        abort_locked(late_text(*call, missing()));
    }
    calls_.erase(call);
    throw_if_aborted();
  }
  /// Changes state under the lock and wakes whoever waits for it.
  template <class Change>
  void update(WaitPoint& point, Change change) {
    const std::lock_guard lock(mutex_);
    throw_if_aborted();
    change();
    point.notify_all();
  }

 private:
  using Clock = std::chrono::steady_clock;

  /// A thread of a rank that waits.
  struct Call {
    int rank;
    const char* operation;
    CallSite where;
    WaitPoint* point;
    friend std::string to_text(const Call& call) {
      return concat(call.operation, " at ", to_text(call.where));
    }
  };

  void abort_locked(const std::string& message) {
    if (!aborted_) message_ = message;
    aborted_ = true;
    wake_everyone();
  }
  void throw_if_aborted() const {
    if (aborted_) throw Aborted(message_);
  }
  void wake_everyone() {
    for (const auto& call : calls_) call.point->notify_all();
  }
  [[nodiscard]] std::string late_text(const Call& late, const std::vector<int>& missing) const {
    std::string text =
        concat("rank ", late.rank, " has waited ", timeout_s_, " s in ", to_text(late), " for");
    for (const int other : missing) {
      append_text(text, concat(" rank ", other, " ("));
      bool found = false;
      for (const auto& call : calls_)
        if (call.rank == other) {
          append_text(text, concat(found ? ", " : "", "which is in ", to_text(call)));
          found = true;
        }
      append_text(text, found ? ")" : "which is in no collective)");
    }
    return text + "; a larger --comm-timeout waits longer";
  }

  std::mutex mutex_;
  double timeout_s_;
  std::vector<bool> finished_;
  std::list<Call> calls_;
  bool aborted_ = false;
  std::string message_;
};

}  // namespace dhp
