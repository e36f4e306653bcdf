// WatchedWorld: the ranks of this process, one or several, whose collectives run on devices by themselves. A
// device that waits for a rank that is gone waits for ever, and so does the host that waits for the
// device: a thread looks at every channel, and ends all of them when one is in trouble.
#pragma once

#include <dhp/comm/aborted.hpp>
#include <dhp/comm/deadlines.hpp>
#include <dhp/comm/ledger.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace dhp {

class WatchedWorld {
 public:
  using Clock = std::chrono::steady_clock;

  /// Something that collectives run on.
  class Channel {
   public:
    virtual ~Channel() = default;
    /// What is wrong, in a sentence; empty: nothing. Called by the watching thread, may not block.
    [[nodiscard]] virtual std::string trouble() = 0;
    /// Ends what runs, and lets nothing begin. Called once, by a thread that does nothing else: one channel
    /// may need another one's end to come to its own.
    virtual void end() noexcept = 0;
  };

  struct Options {
    double timeout_s = 300;  ///< of every wait; 0: none
    double period_s = 0.05;  ///< between two looks at the channels
    /// How long channels may take to end; after that they are left to themselves: a driver that hangs is
    /// no reason for a program to hang as well.
    double end_limit_s = 20;
    std::shared_ptr<const Deadlines> deadlines{};  ///< instead of timeout_s, where there are any
    /// Where channels note their calls; null: nowhere. Somebody looks at those of all ranks then, and can say more than
    /// a channel: it is given the time to.
    std::shared_ptr<Ledger> ledger{};
  };

  explicit WatchedWorld(Options options)
      : options_(std::move(options)),
        deadlines_(options_.deadlines ? options_.deadlines
                                      : std::make_shared<Deadlines>(options_.timeout_s)) {
    watchdog_ = std::thread([this] { watch(); });
  }
  WatchedWorld(const WatchedWorld&) = delete;
  WatchedWorld& operator=(const WatchedWorld&) = delete;
  ~WatchedWorld() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    watchdog_.join();
  }

  /// Throws Aborted when the world has ended: a channel must not begin then.
  void add(std::shared_ptr<Channel> channel) {
    {
      const std::lock_guard lock(mutex_);
      if (aborted_) throw Aborted(message_);
      channels_.push_back(std::move(channel));
    }
    changed_.notify_all();
  }
  /// The channel is watched no more.
  void remove(const Channel& channel) {
    const std::lock_guard lock(mutex_);
    std::erase_if(channels_, [&](const auto& other) { return other.get() == &channel; });
  }

  /// Ends all channels with this message; the first one counts. Does not wait for their end.
  void abort(const std::string& message) {
    {
      const std::lock_guard lock(mutex_);
      if (aborted_) return;
      message_ = message;
      aborted_ = true;
    }
    changed_.notify_all();
  }
  [[nodiscard]] bool aborted() const { return aborted_; }
  /// Throws Aborted when the world has ended early.
  void check_alive() {
    if (!aborted_) [[likely]]
      return;
    const std::lock_guard lock(mutex_);
    throw Aborted(message_);
  }

  /// How long channels wait.
  struct Patience {
    std::shared_ptr<const Deadlines> deadlines;
    std::chrono::seconds more{0};  ///< than that
    [[nodiscard]] bool is_late(Clock::time_point begun) const {
      return Clock::now() - more > deadlines->end_of_wait(begun);
    }
  };
  [[nodiscard]] Patience patience() const {
    return {deadlines_, std::chrono::seconds(options_.ledger ? 1 : 0)};
  }
  [[nodiscard]] const std::shared_ptr<Ledger>& ledger() const { return options_.ledger; }

  /// For the host: returns when ready(); throws Aborted when the world ends, which it does with late() when
  /// the time limit is reached.
  template <class Ready, class Late>
  void wait_until(Ready ready, Late late) {
    const auto start = Clock::now();
    for (int looks = 0; !ready(); ++looks) {
      check_alive();
      if (patience().is_late(start)) abort(concat(late(), ", beyond ", deadlines_->limit()));
      constexpr int eager = 200;  // what is quick should not sleep
      if (looks < eager) std::this_thread::yield();
      else std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

 private:
  using Channels = std::vector<std::shared_ptr<Channel>>;

  void watch() {
    const auto period = std::chrono::duration<double>(options_.period_s);
    std::unique_lock lock(mutex_);
    while (!stop_ && !aborted_) {
      if (channels_.empty()) changed_.wait(lock);
      else changed_.wait_for(lock, period);
      if (stop_ || aborted_) break;
      const Channels channels = channels_;
      lock.unlock();
      look_at(channels);
      lock.lock();
    }
    if (!aborted_) return;
    const Channels channels = std::exchange(channels_, {});
    lock.unlock();
    end_all(channels);
  }
  void look_at(const Channels& channels) {
    for (const auto& channel : channels) {
      std::string trouble;
      try {
        trouble = channel->trouble();
      } catch (const Error& error) {
        trouble = error.sentence();
      } catch (const std::exception& error) {
        trouble = error.what();
      }
      if (!trouble.empty()) return abort(trouble);
    }
  }
  // All at once: where one frees its memory the device waits for the work of all.
  void end_all(const Channels& channels) const {
    struct Ending {
      std::mutex mutex;
      std::condition_variable changed;
      std::size_t under_way = 0;
    };
    const auto ending = std::make_shared<Ending>();
    ending->under_way = channels.size();
    const auto end_one = [ending](WatchedWorld::Channel& channel) {
      channel.end();
      const std::lock_guard lock(ending->mutex);
      --ending->under_way;
      ending->changed.notify_all();
    };
    for (const auto& channel : channels) {
      try {
        std::thread([channel, end_one] { end_one(*channel); }).detach();
      } catch (const std::system_error&) {  // no more threads: then one after the other
        end_one(*channel);
      }
    }
    std::unique_lock lock(ending->mutex);
    ending->changed.wait_for(lock, std::chrono::duration<double>(options_.end_limit_s),
                             [&] { return ending->under_way == 0; });
  }

  Options options_;
  std::shared_ptr<const Deadlines> deadlines_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Channels channels_;
  std::atomic<bool> aborted_ = false;
  std::string message_;
  bool stop_ = false;
  std::thread watchdog_;
};

}  // namespace dhp
