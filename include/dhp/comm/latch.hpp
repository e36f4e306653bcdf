// Latch ends a world: all of its ranks then throw the same reason. It is the only part of a watchdog that engines use.
#pragma once

#include <dhp/core/error.hpp>

#include <atomic>
#include <condition_variable>
#include <ctime>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace dhp {

/// Thrown on a rank if the world has ended for a reason that is not this rank's own. The message is that reason.
class Aborted : public Error {
 public:
  using Error::Error;
};

/// Ends the world, and records which ranks of this process have finished. Thread-safe.
class Latch : detail::NonCopyable {
 public:
  virtual ~Latch() = default;

  [[nodiscard]] bool ended() const { return ended_; }
  /// Throws Aborted when the world has ended.
  void check_alive() {
    if (ended_) [[unlikely]]
      throw_ended();
  }
  /// Ends every rank with this message; the first message counts. Gives other processes a few seconds to receive it.
  virtual void abort(const std::string& why) {
    const std::lock_guard lock(mutex_);
    end(why);
  }
  /// Reports a broken connection to a rank; throws Aborted after all ranks know the cause.
  [[noreturn]] virtual void lost(int peer, const std::string& why) {
    abort(concat("the connection to rank ", peer, " has broken (", why, ")"));
    throw_ended();
  }
  /// Records that the body of a rank of this process has returned. May throw Aborted.
  virtual void finish(int rank) {
    const std::lock_guard lock(mutex_);
    finished_.insert(rank);
    any_finished_ = true;
    call_all();
  }
  [[nodiscard]] bool has_finished(int rank) const {
    if (!any_finished_) return false;
    const std::lock_guard lock(mutex_);
    return finished_.contains(rank);
  }

  /// The waits for other ranks that the threads of one rank have begun and ended. Engines of threads count them.
  struct Waits {
    std::atomic<std::uint64_t> begun = 0, ended = 0;
    std::atomic<const char*> operation = "";  ///< operation of the latest wait
    std::atomic<std::source_location> where{};
  };
  std::vector<Waits> waits{};  ///< by rank
  std::timespec look{6, 0};    ///< time between two checks of `waits`
  /// Returns the number of waits begun so far if every unfinished rank is waiting; otherwise 0.
  [[nodiscard]] std::uint64_t all_wait() const {
    std::uint64_t begun = 0;
    for (std::size_t rank = 0; rank < waits.size(); begun += waits[rank++].begun)
      if (waits[rank].begun == waits[rank].ended && !has_finished(static_cast<int>(rank))) return 0;
    return begun;
  }

  using OnChange = std::function<void()>;
  /// Runs `call`, on any thread, when a rank of this process finishes and when the world ends, until the handle is
  /// destroyed; runs it now if the world has ended. The latch is locked during calls, so `call` may only use ended().
  [[nodiscard]] std::shared_ptr<void> on_change(OnChange call) {
    const auto held = std::make_shared<OnChange>(std::move(call));
    const std::lock_guard lock(mutex_);
    std::erase_if(on_change_, [](const auto& other) { return other.expired(); });
    on_change_.push_back(held);
    if (ended_) (*held)();
    return held;
  }

 protected:
  /// Ends the world. The caller holds the lock.
  void end(const std::string& message) {
    if (ended_) return;
    message_ = message;
    ended_ = true;
    call_all();
    changed_.notify_all();
  }
  [[noreturn]] void throw_ended() {
    const std::lock_guard lock(mutex_);
    noticed_ = true;
    throw Aborted(message_);
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> ended_ = false;
  std::string message_;
  bool noticed_ = false;  ///< whether a rank of this process knows that the world has ended

 private:
  void call_all() {
    for (const auto& call : on_change_)
      if (const auto held = call.lock()) (*held)();
  }
  std::vector<std::weak_ptr<OnChange>> on_change_;
  std::set<int> finished_;
  std::atomic<bool> any_finished_ = false;
};

}  // namespace dhp
