// World: the ranks of a job that this process holds, as threads, or as one of many processes. A few times a second a
// thread hands their recorded calls to the failure detector, over the job's store where ranks are processes. When the
// world ends, every wait of every engine ends with it, and every rank hears the same reason.
#pragma once

#include <dhp/comm/rendezvous/key_value_store.hpp>
#include <dhp/comm/watch/failure_detector.hpp>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <source_location>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace dhp {

/// The world has ended for a reason that is not this rank's: the sentence is that reason.
class Aborted : public Error {
 public:
  // Not "using Error::Error": nvcc 13 cannot inherit a constructor with this default argument.
  explicit Aborted(const std::string& sentence,
                   std::source_location where = std::source_location::current())
      : Error(sentence, where) {}
};

namespace detail {
/// A rank cannot connect to another one, which may have ended meanwhile.
class NotConnected : public Error {
 public:
  explicit NotConnected(const std::string& sentence,
                        std::source_location where = std::source_location::current())
      : Error(sentence, where) {}
};
}  // namespace detail

struct WorldOptions {
  double timeout_s = 300;  ///< of every wait for another rank, and of a rank's silence; 0: none
  std::shared_ptr<const Deadlines> deadlines{};  ///< instead of timeout_s, where there are any
  /// One for each rank of this process; those that are missing are made.
  std::vector<std::shared_ptr<FlightRecorder>> recorders{};
  std::string name{};      ///< where this process runs, for messages: "host node7, process 4711"
  double period_s = 0.25;  ///< between two looks
  /// Called once, by a thread of the world, when a rank of this process has not noticed the end for stuck_after_s: its
  /// work or a library does not return. A program may end itself here.
  std::function<void(const std::string& message)> stuck{};
  double stuck_after_s = 10;
  /// How long channels may take to end; after that they are left alone, since a driver may hang.
  double end_limit_s = 20;
};

class World {
 public:
  using Options = WorldOptions;
  using Clock = std::chrono::steady_clock;

  /// Something that works by itself, a device's communicator say, and is looked at as long as it is watched.
  class Channel {
   public:
    virtual ~Channel() = default;
    /// What is wrong, in a sentence; empty: nothing. May not block.
    [[nodiscard]] virtual std::string trouble() = 0;
    /// Ends what runs, and lets nothing begin. Called once, by a thread of its own: it may wait for another one's end.
    /// Until then it works as before; from then on other ranks may get garbage from it.
    virtual void end() noexcept = 0;
  };

  /// All ranks are of this process.
  World(int ranks, Options options) : World(nullptr, 0, ranks, ranks, std::move(options)) {}
  /// This process is one rank; all have met in the store.
  World(std::shared_ptr<KeyValueStore> store, int rank, int size, Options options)
      : World(std::move(store), rank, 1, size, std::move(options)) {}
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    watch_.join();
  }

  [[nodiscard]] int size() const { return size_; }
  /// The first, or only, rank of this process.
  [[nodiscard]] int rank() const { return first_; }
  [[nodiscard]] const std::shared_ptr<FlightRecorder>& recorder(int rank) const {
    return options_.recorders[static_cast<std::size_t>(rank - first_)];
  }
  [[nodiscard]] const std::shared_ptr<const Deadlines>& deadlines() const { return deadlines_; }
  [[nodiscard]] KeyValueStore& store() { return *store_; }

  using AtEnd = std::function<void()>;
  /// Called once, when the world ends, by any thread, until the handle is gone. It may not call this world.
  [[nodiscard]] std::shared_ptr<void> on_end(AtEnd call) {
    const auto held = std::make_shared<AtEnd>(std::move(call));
    const std::lock_guard lock(mutex_);
    std::erase_if(at_end_, [](const auto& other) { return other.expired(); });
    at_end_.push_back(held);
    if (ended_) (*held)();
    return held;
  }
  /// Throws Aborted when the world has ended: a channel must not begin then.
  void watch(std::shared_ptr<Channel> channel) {
    {
      const std::lock_guard lock(mutex_);
      if (ended_) throw Aborted(message_);
      channels_.push_back(std::move(channel));
      hurry_ = true;
    }
    changed_.notify_all();
  }
  void unwatch(const Channel& channel) {
    const std::lock_guard lock(mutex_);
    std::erase_if(channels_, [&](const auto& other) { return other.get() == &channel; });
  }

  [[nodiscard]] bool ended() const { return ended_; }
  /// Ends it for this rank alone: its ranks are in another world now.
  void leave() {
    const std::lock_guard lock(mutex_);
    noticed_ = true;
    end("this rank has left its world");
  }
  /// After the end: returns when all channels have ended, and nothing of theirs runs any more. False: they have not
  /// within the time that they may take.
  [[nodiscard]] bool wait_for_channels() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, seconds(2 * options_.end_limit_s),
                             [this] { return channels_.empty(); });
  }
  /// Throws Aborted when the world has ended.
  void check_alive() {
    if (ended_) [[unlikely]]
      throw_ended();
  }

  /// What another rank sets in the store. Throws Aborted when the world ends before.
  [[nodiscard]] std::string get(const std::string& key) {
    const FlightRecorder::Open call(*recorder(first_),
                                    {.text = concat("waiting for \"", key, "\" in the store")});
    for (double pause_s = 0.001;; pause_s = std::min(2 * pause_s, 0.05)) {
      check_alive();
      if (auto value = store_->find(key)) return std::move(*value);
      std::this_thread::sleep_for(seconds(pause_s));
    }
  }
  /// The host waits for ready(). Throws Aborted when the world ends, which it does with late() after the time limit.
  template <class Ready, class Late>
  void wait_until(Ready ready, Late late) {
    const auto start = Clock::now();
    for (int looks = 0; !ready(); ++looks) {
      check_alive();
      if (is_late(start)) abort(concat(late(), ", beyond ", deadlines_->limit()));
      constexpr int eager = 200;  // what is quick should not sleep
      if (looks < eager) std::this_thread::yield();
      else std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
  /// Of a wait in one engine. Where a detector looks at all processes it can say more, and is given the time to.
  [[nodiscard]] bool is_late(Clock::time_point begun) const {
    return Clock::now() - std::chrono::seconds(store_ ? 1 : 0) > deadlines_->end_of_wait(begun);
  }

  /// Ends every rank with this message; of several the first counts. Returns when other processes can have heard it.
  void abort(const std::string& why) {
    if (!store_) {
      const std::lock_guard lock(mutex_);
      return end(why);
    }
    publish([&] {
      if (!ended_ && states_.front().failed.empty()) states_.front().failed = why;
      noticed_ = true;
    });
    wait_for_end(concat("rank ", first_, ": ", why));
  }
  /// The connection to a rank has broken: throws Aborted with what the detector finds out, or with this.
  [[noreturn]] void lost(int peer, const std::string& why) {
    publish([&] {
      auto& known = states_.front().lost;
      if (std::find(known.begin(), known.end(), peer) == known.end()) known.push_back(peer);
    });
    wait_for_end(
        concat("rank ", first_, " has lost its connection to rank ", peer, " (", why, ")"));
    throw_ended();
  }
  /// The rank's body has returned. Rank 0 of processes waits for all others, since the store is its; may throw Aborted.
  void finish(int rank) {
    publish([&] { states_[static_cast<std::size_t>(rank - first_)].finished = true; });
    if (!store_) return;
    std::unique_lock lock(mutex_);
    changed_.wait(lock,
                  [this] { return ended_ || (first_ == 0 ? all_finished_ : said_finished_); });
    if (!ended_) return;
    noticed_ = true;
    throw Aborted(message_);
  }

 private:
  World(std::shared_ptr<KeyValueStore> store, int first, int local, int size, Options options)
      : store_(std::move(store)),
        first_(first),
        size_(size),
        options_(std::move(options)),
        deadlines_(options_.deadlines ? options_.deadlines
                                      : std::make_shared<Deadlines>(options_.timeout_s)),
        detector_(size, {.timeout_s = deadlines_->limit_s(), .learned = !deadlines_->fixed()}) {
    check(size >= 1 && local >= 1, "a world has at least 1 rank, got ", size);
    states_.resize(static_cast<std::size_t>(local));
    for (auto& state : states_) state.name = store_ ? options_.name : std::string();
    options_.recorders.resize(static_cast<std::size_t>(local));
    for (auto& recorder : options_.recorders)
      if (!recorder) recorder = std::make_shared<FlightRecorder>();
    for (const auto& recorder : options_.recorders) calls_before_.push_back(recorder->calls());
    watch_ = std::thread([this] { look_after_all(); });
  }

  static std::chrono::duration<double> seconds(double s) {
    return std::chrono::duration<double>(s);
  }
  template <class Change>
  void publish(Change change) {
    {
      const std::lock_guard lock(mutex_);
      change();
      hurry_ = true;
    }
    changed_.notify_all();
  }
  [[noreturn]] void throw_ended() {
    const std::lock_guard lock(mutex_);
    noticed_ = true;
    throw Aborted(message_);
  }
  // Ends the world by itself when nobody else does within a few periods.
  void wait_for_end(const std::string& otherwise) {
    std::unique_lock lock(mutex_);
    const auto patience = seconds(2 + 4 * options_.period_s);
    changed_.wait_for(lock, patience, [this] { return ended_.load(); });
    end(otherwise);
    noticed_ = true;
  }
  // With the lock.
  void end(const std::string& message) {
    if (ended_) return;
    message_ = message;
    ended_ = true;
    ended_at_ = Clock::now();
    for (const auto& call : at_end_)
      if (const auto held = call.lock()) (*held)();
    changed_.notify_all();
  }

  void look_after_all() {
    std::unique_lock lock(mutex_);
    while (!stop_ && !ended_ && !all_finished_) {
      hurry_ = false;
      for (auto& state : states_) ++state.beat;
      auto states = states_;
      const auto channels = channels_;
      lock.unlock();
      bool over = false;
      auto why = look(states, channels, over);
      lock.lock();
      if (!why.empty()) end(why);
      said_finished_ = said_finished_ || states.front().finished;
      all_finished_ = all_finished_ || over;
      if (said_finished_) changed_.notify_all();
      if (!ended_ && !all_finished_)
        changed_.wait_for(lock, seconds(period_s()), [this] { return stop_ || hurry_ || ended_; });
    }
    if (!ended_) return;
    const auto channels = channels_;
    for (auto& state : states_) state.ended = true, ++state.beat;
    if (states_.front().failed.empty()) states_.front().failed = own_trouble_;
    const auto states = states_;
    lock.unlock();
    if (store_) publish_end(states.front(), !channels.empty());
    const bool all_ended = end_all(channels);
    lock.lock();
    if (all_ended) channels_.clear();
    changed_.notify_all();
    watch_for_stuck(lock);
  }
  // A short limit wants frequent looks, and so do channels, but not those of many processes at one store.
  [[nodiscard]] double period_s() const {
    const double limit_s = deadlines_->limit_s();
    // Of a rank to which the connection has broken more will be known soon.
    if (!states_.front().lost.empty()) return 0.01;
    const double often_s = channels_.empty() || store_ ? options_.period_s : 0.05;
    return limit_s > 0 ? std::min(often_s, limit_s / 4) : often_s;
  }
  /// Why the world ends, if it does.
  [[nodiscard]] std::string look(std::vector<detail::RankState>& states,
                                 const std::vector<std::shared_ptr<Channel>>& channels,
                                 bool& over) {
    try {
      for (std::size_t at = 0; at < states.size(); ++at) {
        states[at].limit = deadlines_->limit();  // before its calls, which may end this section
        states[at].read(*options_.recorders[at], calls_before_[at]);
      }
      return judge(states, channels, over);
    } catch (const Error& error) {
      over = true;
      return states.front().finished ? std::string() : store_lost(states.front(), error.sentence());
    } catch (const std::exception& error) {  // no memory
      over = true;
      return states.front().finished ? std::string() : error.what();
    }
  }
  // Of several processes: says how this rank is, and hears how the others are. Rank 0 decides.
  [[nodiscard]] std::string judge(const std::vector<detail::RankState>& states,
                                  const std::vector<std::shared_ptr<Channel>>& channels,
                                  bool& over) {
    const double now_s = options_.recorders.front()->now_s();
    if (store_) {
      store_->set(concat("state/", first_), states.front().written());
      if (auto verdict = store_->find("verdict")) return *verdict;
      if (first_ != 0) {
        if (auto silent = rank_zero_silent(states.front(), now_s); !silent.empty()) {
          (void)store_->set_unless("verdict", "verdict", silent);
          return silent;
        }
        return own_trouble_ = trouble_of(channels);
      }
      read_states(now_s);
    } else {
      for (std::size_t rank = 0; rank < states.size(); ++rank)
        detector_.update(static_cast<int>(rank), states[rank], now_s);
    }
    auto verdict = detector_.judge(now_s);
    if (verdict.empty()) verdict = trouble_of(channels);
    if (store_ && !verdict.empty()) store_->set("verdict", verdict);
    over = detector_.all_finished();
    return verdict;
  }
  [[nodiscard]] static std::string trouble_of(
      const std::vector<std::shared_ptr<Channel>>& channels) {
    for (const auto& channel : channels) {
      try {
        if (auto trouble = channel->trouble(); !trouble.empty()) return trouble;
      } catch (const Error& error) {
        return error.sentence();
      }
    }
    return {};
  }
  // All at once: a device that frees its memory waits for the work of all.
  [[nodiscard]] bool end_all(const std::vector<std::shared_ptr<Channel>>& channels) const {
    const auto left = std::make_shared<std::atomic<std::size_t>>(channels.size());
    for (const auto& channel : channels) {
      const auto end_one = [left, channel] {
        channel->end();
        --*left;
      };
      try {
        std::thread(end_one).detach();
      } catch (const std::system_error&) {  // no more threads: then one after the other
        end_one();
      }
    }
    return detail::poll_until([&] { return *left == 0; }, options_.end_limit_s);
  }

  void read_states(double now_s) {
    for_ranks("state/", [&](int rank, const std::string& text) {
      if (auto reported = detail::RankState::parsed(text))
        detector_.update(rank, std::move(*reported), now_s);
    });
    for_ranks(detail::left_prefix, [&](int rank, const std::string&) { detector_.leave(rank); });
  }
  /// use(rank, value) for each rank that has a key with this prefix.
  template <class Use>
  void for_ranks(const std::string& prefix, Use use) {
    for (const auto& [key, value] : store_->list(prefix)) {
      int rank = -1;
      std::from_chars(key.data() + prefix.size(), key.data() + key.size(), rank);
      if (rank >= 0 && rank < size_) use(rank, value);
    }
  }
  // Rank 0 looks at all others, and they at it.
  [[nodiscard]] std::string rank_zero_silent(const detail::RankState& state, double now_s) {
    const auto text = store_->find("state/0");
    const auto zero = text ? detail::RankState::parsed(*text) : std::nullopt;
    const bool finished = zero && zero->finished;
    if (!finished && store_->find(concat(detail::left_prefix, 0)))
      return store_lost(state, "its connection to the store has ended");
    if (!text || *text != rank_zero_said_) {
      rank_zero_said_ = text.value_or("");
      rank_zero_heard_s_ = now_s;
      return {};
    }
    const double silence_s = now_s - rank_zero_heard_s_;
    const auto& lost = state.lost;
    if (!finished && silence_s > detector_.limits().lost_s &&
        std::find(lost.begin(), lost.end(), 0) != lost.end())
      return store_lost(state, "the connection to it has broken, and it says nothing");
    const bool longer = !deadlines_->fixed() && zero && zero->limit.longer_than(state.limit);
    const auto& limit = longer ? zero->limit : state.limit;
    if (finished || !limit.passed_by(silence_s)) return {};
    return store_lost(
        state, concat("nothing has been heard of it for ", static_cast<std::int64_t>(silence_s),
                      " s", limit.why.empty() ? "" : concat(", beyond ", limit)));
  }
  [[nodiscard]] std::string store_lost(const detail::RankState& state,
                                       const std::string& why) const {
    const auto* call = state.busy();
    auto text = concat("rank 0, which watches over all in the ",
                       store_ ? store_->description() : std::string("process"), ", is gone (", why,
                       "); rank ", first_, " is in ",
                       call == nullptr ? std::string("no call") : to_text(*call));
    return state.failed.empty() ? text : concat(text, " and fails itself: ", state.failed);
  }
  // The others read the reason in this store: rank 0 stays until they have, or should have. And no channel ends before:
  // a kernel of NCCL that is aborted passes garbage on, as if it were done, and no rank may take that for a result.
  void publish_end(const detail::RankState& state, bool has_channels) noexcept {
    try {
      store_->set(concat("state/", first_), state.written());
      if (first_ != 0 && !has_channels) return;
      const auto all_ended = [&] {
        const double now_s = recorder(first_)->now_s();
        read_states(now_s);
        return detector_.all_ended(now_s);
      };
      (void)detail::poll_until(all_ended, 1.5);
    } catch (const std::exception&) {  // then the others have ended, or will by themselves
    }
  }
  void watch_for_stuck(std::unique_lock<std::mutex>& lock) {
    if (!options_.stuck) return;
    const auto until =
        ended_at_ + std::chrono::duration_cast<Clock::duration>(seconds(options_.stuck_after_s));
    changed_.wait_until(lock, until, [this] { return stop_; });
    if (stop_ || noticed_) return;
    const auto message = message_;
    lock.unlock();
    options_.stuck(message);
    lock.lock();
  }

  std::shared_ptr<KeyValueStore> store_;  // null: all ranks are here
  int first_;
  int size_;
  Options options_;
  std::shared_ptr<const Deadlines> deadlines_;
  std::vector<std::uint64_t> calls_before_;  // by recorder: calls of earlier worlds
  detail::FailureDetector detector_;         // the watching thread's, as are the next three
  std::string own_trouble_;                  // of a channel, for the other processes
  std::string rank_zero_said_;
  double rank_zero_heard_s_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<detail::RankState> states_;  // of the ranks of this process
  std::vector<std::shared_ptr<Channel>> channels_;
  std::vector<std::weak_ptr<AtEnd>> at_end_;
  std::atomic<bool> ended_ = false;
  Clock::time_point ended_at_{};
  std::string message_;
  bool noticed_ = false;
  bool hurry_ = false;
  bool stop_ = false;
  bool said_finished_ = false;
  bool all_finished_ = false;
  std::thread watch_;
};

}  // namespace dhp
