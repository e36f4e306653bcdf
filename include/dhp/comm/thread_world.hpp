// The world of ranks that are threads of one process: who has finished, who waits where, and whether it has
// ended early. Waiting blocks and never spins (there are often more ranks than cores), and always ends:
// when any rank throws, when a rank that is waited for has finished, or when the time limit is reached.
#pragma once

#include <dhp/comm/aborted.hpp>
#include <dhp/comm/communicator.hpp>
#include <dhp/comm/deadlines.hpp>
#include <dhp/comm/signal.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace dhp {

class ThreadWorld {
 public:
  /// A thread of a rank that may have to wait; it lives on that thread's stack for as long.
  class Call {
   public:
    Call(int rank, const char* operation, CallSite where, Signal& signal)
        : rank_(rank), operation_(operation), where_(where), signal_(&signal) {}
    virtual ~Call() = default;
    /// World ranks that have yet to come; none when the wait is over.
    [[nodiscard]] virtual std::vector<int> missing() const = 0;

   private:
    friend class ThreadWorld;
    friend std::string to_text(const Call& call) {
      return concat(call.operation_, " at ", to_text(call.where_));
    }
    int rank_;
    const char* operation_;
    CallSite where_;
    Signal* signal_;
    std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
    std::size_t place_ = 0;
  };

  /// timeout_s: time limit of every wait, in seconds; 0: none.
  ThreadWorld(int ranks, double timeout_s)
      : ThreadWorld(ranks, std::make_shared<Deadlines>(timeout_s)) {}
  ThreadWorld(int ranks, std::shared_ptr<const Deadlines> deadlines)
      : deadlines_(std::move(deadlines)), finished_(static_cast<std::size_t>(std::max(ranks, 0))) {
    check(ranks >= 1, "a world has at least 1 rank, got ", ranks);
    if (deadlines_->limit_s() > 0) watchdog_ = std::thread([this] { watch(); });
  }
  ThreadWorld(const ThreadWorld&) = delete;
  ThreadWorld& operator=(const ThreadWorld&) = delete;
  ~ThreadWorld() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    if (watchdog_.joinable()) watchdog_.join();
  }

  [[nodiscard]] int ranks() const { return static_cast<int>(finished_.size()); }

  /// Ends all ranks, wherever they wait, with this message; the first one counts.
  void abort(const std::string& message) {
    const std::lock_guard lock(mutex_);
    end(message);
  }
  [[nodiscard]] bool aborted() const { return aborted_; }
  /// Throws Aborted when the world has ended early.
  void check_alive() {
    if (!aborted_) [[likely]]
      return;
    const std::lock_guard lock(mutex_);
    throw Aborted(message_);
  }

  /// The rank's body has returned: who waits for it now, or will, waits in vain.
  void finish(int rank) {
    const std::lock_guard lock(mutex_);
    finished_[static_cast<std::size_t>(rank)] = true;
    for (const auto* call : calls_) end_if_in_vain(*call);
  }

  /// To be called before a rank lets others know that it waits: an end of the world reaches from now on
  /// the call's signal. Throws Aborted when it has ended already.
  void begin(Call& call) {
    const std::lock_guard lock(mutex_);
    if (!aborted_) end_if_in_vain(call);
    if (aborted_) throw Aborted(message_);
    call.place_ = calls_.size();
    calls_.push_back(&call);
  }
  void leave(Call& call) {
    const std::lock_guard lock(mutex_);
    calls_[call.place_] = calls_.back();
    calls_[call.place_]->place_ = call.place_;
    calls_.pop_back();
  }

 private:
  using Clock = std::chrono::steady_clock;

  void end(const std::string& message) {
    if (aborted_) return;
    message_ = message;
    aborted_ = true;
    for (const auto* call : calls_) call->signal_->end();
  }
  void end_if_in_vain(const Call& call) {
    for (const int other : call.missing()) {
      if (!finished_[static_cast<std::size_t>(other)]) continue;
      end(concat("rank ", call.rank_, " waits in ", to_text(call), " for rank ", other,
                 ", which has finished"));
      return;
    }
  }

  // The watchdog sleeps until the oldest call would be late; there is nothing to do in between, but to see whether
  // a limit that is learned has changed.
  void watch() {
    constexpr auto period = std::chrono::milliseconds(500);
    std::unique_lock lock(mutex_);
    while (!stop_ && !aborted_) {
      const auto now = Clock::now();
      auto next = deadlines_->fixed() ? deadlines_->end_of_wait(now) : now + period;
      const Call* late = nullptr;
      for (const auto* call : calls_) {
        const auto end = deadlines_->end_of_wait(call->since_);
        if (end > now) next = std::min(next, end);
        else if (late == nullptr && !call->missing().empty()) late = call;
      }
      if (late != nullptr) end(late_text(end_of_chain(*late)));
      else changed_.wait_until(lock, next);
    }
  }
  // Whoever waits only for ranks that wait themselves is not to blame: of a chain of waits the last one says
  // most. Ranks that wait for each other in a circle are all as good.
  [[nodiscard]] const Call& end_of_chain(const Call& late) const {
    const Call* last = &late;
    for (int steps = 0; steps < ranks(); ++steps) {
      const Call* next = nullptr;
      for (const int other : last->missing()) {
        next = call_of(other);
        if (next == nullptr) return *last;
      }
      if (next == nullptr) break;
      last = next;
    }
    return *last;
  }
  /// Where a rank waits; null: nowhere.
  [[nodiscard]] const Call* call_of(int rank) const {
    for (const auto* call : calls_)
      if (call->rank_ == rank && !call->missing().empty()) return call;
    return nullptr;
  }
  [[nodiscard]] std::string late_text(const Call& late) const {
    auto text = concat("rank ", late.rank_, " waits in ", to_text(late), " for");
    const char* separator = " ";
    for (const int other : late.missing()) {
      append_text(text, concat(separator, "rank ", other, " ("));
      bool found = false;
      for (const auto* call : calls_) {
        if (call->rank_ != other) continue;
        append_text(text, concat(found ? ", " : "which is in ", to_text(*call)));
        found = true;
      }
      append_text(text, found ? ")" : "which is in no collective)");
      separator = ", ";
    }
    return concat(text, ", beyond ", deadlines_->limit());
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<const Deadlines> deadlines_;
  std::vector<bool> finished_;
  std::vector<Call*> calls_;
  std::atomic<bool> aborted_ = false;
  std::string message_;
  bool stop_ = false;
  std::thread watchdog_;
};

}  // namespace dhp
