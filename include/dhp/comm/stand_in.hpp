// StandIn: what a thread does that does the work of those who wait, where nobody waits and there is need.
#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <string>

namespace dhp {

/// All of it is used with one lock.
class StandIn {
 public:
  /// Until stop(): step(lock), over and over, as long as needed(). `changed` is to be told when there is need, or no more.
  /// What a step throws is its end, and in failed().
  template <class Needed, class Step>
  void work(std::unique_lock<std::mutex>& lock, std::condition_variable& changed, Needed needed,
            Step step) {
    constexpr std::chrono::microseconds patience(
        200);  // who begins something waits soon, as a rule
    try {
      while (!stop_) {
        idle_ = true;
        changed.wait(lock, [&] { return stop_ || needed(); });
        idle_ = false;
        if (changed.wait_for(lock, patience, [&] { return stop_ || !needed(); })) continue;
        working_ = true;
        while (!stop_ && needed()) step(lock);
        working_ = false;
      }
    } catch (const std::exception& error) {  // no memory
      failed_ = error.what();
      working_ = false;
      changed.notify_all();
    }
  }
  void stop() { stop_ = true; }
  /// It has to be told of a need.
  [[nodiscard]] bool idle() const { return idle_; }
  [[nodiscard]] bool working() const { return working_; }
  /// Why it does nothing any more; empty: it does.
  [[nodiscard]] const std::string& failed() const { return failed_; }

 private:
  bool idle_ = false;
  bool working_ = false;
  bool stop_ = false;
  std::string failed_;
};

}  // namespace dhp
