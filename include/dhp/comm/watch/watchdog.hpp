// Watchdog ends the world when a rank of this process fails, hangs, or makes other calls than the other ranks. A few
// times a second, its thread passes the recorded calls of the ranks to the failure detector.
#pragma once

#include <dhp/comm/latch.hpp>
#include <dhp/comm/watch/failure_detector.hpp>
#include <dhp/core/poll_until.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace dhp {

struct WatchOptions {
  double timeout_s = 300;  ///< limit of each wait for a rank and of a rank's silence; 0: none
  std::shared_ptr<const Deadlines> deadlines{};  ///< limits by section, instead of timeout_s
  /// One recorder for each rank of this process; the watchdog makes the missing ones.
  std::vector<std::shared_ptr<FlightRecorder>> recorders{};
  std::string name{};      ///< name of this process in messages: "host node7, process 4711"
  double period_s = 0.25;  ///< seconds between two checks of the ranks
  /// Called once, on the watching thread, if no rank of this process notices the world's end within stuck_after_s,
  /// because the ranks' own work or a library call does not return. The function may end the program.
  std::function<void(const std::string& message)> stuck{};
  double stuck_after_s = 10;
  /// Limit for channels to end, in seconds. Slower ones are abandoned, because a driver may hang.
  double end_limit_s = 20;
};

/// Watches a world whose ranks are all in this process.
class Watchdog : public Latch {
 public:
  using Clock = std::chrono::steady_clock;

  /// Asynchronous work that the watchdog checks and ends, such as a device's communicator.
  class Channel {
   public:
    virtual ~Channel() = default;
    /// Returns the channel's error as a sentence; an empty text if there is none. Must not block.
    [[nodiscard]] virtual std::string error() = 0;
    /// Aborts running work and prevents new work; other ranks may then receive garbage from the channel. Called once,
    /// on a thread of its own, because it may wait until another channel ends.
    virtual void end() noexcept = 0;
  };

  Watchdog(int ranks, WatchOptions options) : Watchdog(0, ranks, ranks, std::move(options)) {
    start();
  }
  ~Watchdog() override { stop(); }

  [[nodiscard]] int size() const { return size_; }
  /// Returns the first, or only, rank of this process.
  [[nodiscard]] int rank() const { return first_; }
  [[nodiscard]] const std::shared_ptr<FlightRecorder>& recorder(int rank) const {
    return options_.recorders[detail::as_size(rank - first_)];
  }
  [[nodiscard]] const std::shared_ptr<const Deadlines>& deadlines() const { return deadlines_; }

  void finish(int rank) override {
    publish([&] { states_[detail::as_size(rank - first_)].finished = true; });
    Latch::finish(rank);
  }
  /// Ends the world on this rank alone, when the rank moves on to another world.
  void leave() {
    const std::lock_guard lock(mutex_);
    noticed_ = true;
    end("this rank has left its world");
  }

  /// Watches a channel from now on. Throws Aborted if the world has ended, because no channel may start after that.
  void watch(std::shared_ptr<Channel> channel) {
    publish([&] {
      if (ended_) throw Aborted(message_);
      channels_.push_back(std::move(channel));
    });
  }
  void unwatch(const Channel& channel) {
    const std::lock_guard lock(mutex_);
    std::erase_if(channels_, [&](const auto& other) { return other.get() == &channel; });
  }
  /// Waits until all channels have ended, after the end of the world; returns false if the time limit passes first.
  [[nodiscard]] bool wait_for_channels() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, seconds(2 * options_.end_limit_s),
                             [this] { return channels_.empty(); });
  }

  /// Blocks the host until ready(). Throws Aborted if the world ends; at the time limit, ends the world with late().
  void wait_until(auto ready, auto late) {
    const auto start = Clock::now();
    while (!ready()) {
      check_alive();
      if (is_late(start)) abort(concat(late(), ", beyond ", deadlines_->limit()));
      constexpr auto eager = std::chrono::microseconds(100);  // sleeping would delay a short wait
      if (Clock::now() - start < eager) std::this_thread::yield();
      else std::this_thread::sleep_for(eager);
    }
  }
  /// Returns whether a wait of an engine that began at `begun` is beyond its limit.
  [[nodiscard]] bool is_late(Clock::time_point begun) const {
    return Clock::now() - grace_ > deadlines_->end_of_wait(begun);
  }

 protected:
  using States = std::vector<detail::RankState>;
  struct Decision {
    std::string why{};  ///< reason why the world ends; empty if it does not
    bool over = false;  ///< no rank is left to watch
  };

  /// The watching thread runs from start() to stop(), which derived classes call: it uses their virtual functions.
  Watchdog(int first, int local, int size, WatchOptions options)
      : first_(first),
        size_(size),
        options_(std::move(options)),
        deadlines_(options_.deadlines ? options_.deadlines
                                      : std::make_shared<Deadlines>(options_.timeout_s)),
        detector_(size, deadlines_->limit()) {
    check(size >= 1 && local >= 1, "a world has at least 1 rank, got ", size);
    states_.resize(detail::as_size(local));
    for (auto& state : states_) state.name = options_.name;
    options_.recorders.resize(detail::as_size(local));
    for (auto& recorder : options_.recorders)
      if (!recorder) recorder = std::make_shared<FlightRecorder>();
    for (const auto& recorder : options_.recorders) calls_before_.push_back(recorder->calls());
  }
  void start() {
    watch_ = std::thread([this] { look_after_all(); });
  }
  void stop() {
    publish([&] { stop_ = true; });
    if (watch_.joinable()) watch_.join();
  }

  // The watching thread calls decide, poll and publish_end.

  /// Decides whether the world must end. channel_error: the error of a channel of this process; empty if there is none.
  [[nodiscard]] virtual Decision decide(const States& states, const std::string& channel_error,
                                        double now_s) {
    for (std::size_t rank = 0; rank < states.size(); ++rank)
      detector_.update(static_cast<int>(rank), states[rank], now_s);
    auto why = detector_.find_failure(now_s);
    return {why.empty() ? channel_error : std::move(why), detector_.all_finished()};
  }
  /// Checks cheaply, every poll_period_s_, whether the next full check must come immediately.
  [[nodiscard]] virtual bool poll() { return false; }
  /// Called after the world has ended, before any channel ends.
  virtual void publish_end(detail::RankState, bool /*has_channels*/) {}

  /// Changes a state with the lock held, and wakes the watching thread for a check.
  void publish(auto change) {
    {
      const std::lock_guard lock(mutex_);
      change();
      hurry_ = true;
    }
    changed_.notify_all();
  }
  [[nodiscard]] static std::chrono::duration<double> seconds(double s) {
    return std::chrono::duration<double>(s);
  }

  int first_, size_;
  WatchOptions options_;
  std::shared_ptr<const Deadlines> deadlines_;
  detail::FailureDetector detector_;  ///< used by the watching thread alone
  States states_;                     ///< states of the ranks of this process
  std::chrono::seconds grace_{0};     ///< extra time of engines, so that the detector reports first
  double channels_period_s_ = 0.05;   ///< seconds between two checks of channels
  double poll_period_s_ = 1e6;
  bool reported_finish_ = false;  ///< the watching thread has reported finish()
  bool over_ = false;

 private:
  using Channels = std::vector<std::shared_ptr<Channel>>;

  void look_after_all() {
    std::unique_lock lock(mutex_);
    while (!stop_ && !ended_ && !over_) {
      hurry_ = false;
      for (auto& state : states_) ++state.beat;
      auto states = states_;
      const auto channels = channels_;
      lock.unlock();
      const auto [why, over] = inspect(states, channels);
      lock.lock();
      if (!why.empty()) end(why);
      reported_finish_ = states.front().finished;
      over_ = over;
      if (reported_finish_) changed_.notify_all();
      if (!ended_ && !over_) sleep(lock);
    }
    if (!ended_) return;
    const auto ended_at = Clock::now();
    const auto channels = channels_;
    auto own = states_.front();
    lock.unlock();
    own.ended = true;
    ++own.beat;
    publish_end(std::move(own), !channels.empty());
    const bool all_ended = end_all(channels);
    lock.lock();
    if (all_ended) channels_.clear();
    changed_.notify_all();
    if (!options_.stuck) return;
    changed_.wait_until(
        lock,
        ended_at + std::chrono::duration_cast<Clock::duration>(seconds(options_.stuck_after_s)),
        [this] { return stop_; });
    const bool stuck = !stop_ && !noticed_;
    lock.unlock();
    if (stuck) options_.stuck(message_);
  }
  // Sleeps until the next check, which comes early if something happens on this or another rank.
  void sleep(std::unique_lock<std::mutex>& lock) {
    const auto later = [](double s) {
      return Clock::now() + std::chrono::duration_cast<Clock::duration>(seconds(s));
    };
    const auto next = later(period_s());
    const auto woken = [this] { return stop_ || hurry_ || ended_; };
    while (!changed_.wait_until(lock, std::min(next, later(poll_period_s_)), woken) &&
           Clock::now() < next) {
      lock.unlock();
      const bool early = poll();
      lock.lock();
      if (early) return;
    }
  }
  // Short time limits need frequent checks.
  [[nodiscard]] double period_s() const {
    // After a broken connection, the cause will soon be known.
    if (!states_.front().lost.empty()) return 0.01;
    const double often_s =
        channels_.empty() ? options_.period_s : std::min(channels_period_s_, options_.period_s);
    const double limit_s = deadlines_->limit_s();
    return limit_s > 0 ? std::min(often_s, limit_s / 4) : often_s;
  }
  [[nodiscard]] Decision inspect(States& states, const Channels& channels) {
    try {
      for (std::size_t at = 0; at < states.size(); ++at) {
        // Reads the limit before the rank's calls: when a call ends, its section and the section's limit may end too.
        states[at].limit = deadlines_->limit();
        states[at].read(*options_.recorders[at], calls_before_[at]);
      }
      return decide(states, trouble_of(channels), options_.recorders.front()->now_s());
    } catch (const std::exception& error) {  // out of memory
      return {states.front().finished ? "" : error.what(), true};
    }
  }
  [[nodiscard]] static std::string trouble_of(const Channels& channels) {
    for (const auto& channel : channels) {
      try {
        if (auto channel_error = channel->error(); !channel_error.empty()) return channel_error;
      } catch (const Error& error) {
        return error.sentence();
      }
    }
    return {};
  }
  // Ends all channels at the same time, because a device that frees memory waits for the work of every channel.
  [[nodiscard]] bool end_all(const Channels& channels) const {
    const auto left = std::make_shared<std::atomic<std::size_t>>(channels.size());
    for (const auto& channel : channels) {
      const auto end_one = [left, channel] {
        channel->end();
        --*left;
      };
      try {
        std::thread(end_one).detach();
      } catch (const std::system_error&) {  // no more threads: end the channels one by one
        end_one();
      }
    }
    return detail::poll_until([&] { return *left == 0; }, options_.end_limit_s);
  }

  std::vector<std::uint64_t> calls_before_;  // number of calls of earlier worlds, per recorder
  Channels channels_;
  bool hurry_ = false, stop_ = false;
  std::thread watch_;
};

}  // namespace dhp
