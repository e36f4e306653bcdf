// ProcessWorld: the ranks of a job are processes, and this is one of them. A thread tells the others a few times
// a second how this rank is, by way of their store, and hears whether the world has ended; rank 0's also
// looks at all of them. So a rank that is killed, stopped, slow, gone astray or has failed is named to every
// other one, with the place of its call.
#pragma once

#include <dhp/comm/aborted.hpp>
#include <dhp/comm/meet/key_value_store.hpp>
#include <dhp/comm/referee.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace dhp {

class ProcessWorld {
 public:
  struct Options {
    double timeout_s = 300;  ///< of every wait for another rank, and of a rank's silence; 0: none
    double period_s = 0.25;  ///< between two reports
    std::string name{};      ///< where this rank runs, for messages: "host node7, process 4711"
    /// Called once, by a thread of the world, when it has ended and this rank has not noticed for
    /// stuck_after_s: its own work or a library does not return. A program may end itself here.
    std::function<void(const std::string& message)> stuck{};
    double stuck_after_s = 10;
    /// Where rank 0's are learned, those of all ranks are instead of timeout_s; null: timeout_s.
    std::shared_ptr<const Deadlines> deadlines{};
    std::shared_ptr<Ledger> ledger{};  ///< where the calls of this rank are noted; null: its own
  };

  /// All ranks have met in the store.
  ProcessWorld(std::shared_ptr<KeyValueStore> store, int rank, int size, Options options)
      : store_(std::move(store)),
        rank_(rank),
        size_(size),
        options_(std::move(options)),
        deadlines_(options_.deadlines ? options_.deadlines
                                      : std::make_shared<Deadlines>(options_.timeout_s)),
        ledger_(options_.ledger ? options_.ledger : std::make_shared<Ledger>()),
        referee_(size, {.timeout_s = deadlines_->limit_s(), .learned = !deadlines_->fixed()}) {
    state_.name = options_.name;
    watch_ = std::thread([this] { watch(); });
  }
  ProcessWorld(const ProcessWorld&) = delete;
  ProcessWorld& operator=(const ProcessWorld&) = delete;
  ~ProcessWorld() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    watch_.join();
  }

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] Ledger& ledger() { return *ledger_; }
  [[nodiscard]] const std::shared_ptr<Ledger>& shared_ledger() const { return ledger_; }
  [[nodiscard]] const std::shared_ptr<const Deadlines>& deadlines() const { return deadlines_; }
  [[nodiscard]] KeyValueStore& store() { return *store_; }

  using AtEnd = std::function<void(const std::string& why)>;
  /// Called once, when the world ends, by any thread; from now on until the handle is gone. It may not call this
  /// world.
  [[nodiscard]] std::shared_ptr<void> on_end(AtEnd call) {
    const auto held = std::make_shared<AtEnd>(std::move(call));
    const std::lock_guard lock(mutex_);
    std::erase_if(at_end_, [](const auto& other) { return other.expired(); });
    at_end_.push_back(held);
    if (ended_) (*held)(message_);
    return held;
  }
  /// Holds it as long as the world is there.
  void keep(std::shared_ptr<void> handle) {
    const std::lock_guard lock(mutex_);
    kept_.push_back(std::move(handle));
  }

  /// What another rank sets in the store. Throws Aborted when the world ends before.
  [[nodiscard]] std::string get(const std::string& key, CallSite where = CallSite::current()) {
    LedgerEntry entry;
    entry.key = concat("store:", key, "#", rank_);
    entry.operation = entry.what = concat("waiting for \"", key, "\" in the store");
    entry.where = where;
    const Ledger::Call call(*ledger_, std::move(entry));
    for (double pause_s = 0.001;; pause_s = std::min(2 * pause_s, 0.05)) {
      check_alive();
      if (auto value = store_->find(key)) return std::move(*value);
      std::this_thread::sleep_for(seconds(pause_s));
    }
  }

  [[nodiscard]] bool ended() const { return ended_; }
  /// Throws Aborted when the world has ended.
  void check_alive() {
    if (!ended_) [[likely]]
      return;
    throw_ended();
  }

  /// This rank fails: all others are told why. Returns when they can have been told.
  void abort(const std::string& why) {
    {
      const std::lock_guard lock(mutex_);
      if (!ended_ && state_.failed.empty()) state_.failed = why;
      noticed_ = true;
      hurry_ = true;
    }
    changed_.notify_all();
    wait_for_end(concat("rank ", rank_, ": ", why));
  }

  /// The connection to a rank has broken. The world ends: returns never, throws Aborted with what the referee
  /// finds out, or this.
  [[noreturn]] void lost(int peer, const std::string& why) {
    {
      const std::lock_guard lock(mutex_);
      if (std::find(state_.lost.begin(), state_.lost.end(), peer) == state_.lost.end())
        state_.lost.push_back(peer);
      hurry_ = true;
    }
    changed_.notify_all();
    wait_for_end(concat("rank ", rank_, " has lost its connection to rank ", peer, " (", why, ")"));
    throw_ended();
  }

  /// This rank's body has returned. Rank 0 waits until all others have finished as well, since the store is
  /// its; throws Aborted if the world ends before that.
  void finish() {
    {
      const std::lock_guard lock(mutex_);
      state_.finished = true;
      hurry_ = true;
    }
    changed_.notify_all();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return ended_ || (rank_ == 0 ? all_finished_ : said_finished_); });
    if (ended_) {
      noticed_ = true;
      throw Aborted(message_);
    }
  }

 private:
  [[noreturn]] void throw_ended() {
    const std::lock_guard lock(mutex_);
    noticed_ = true;
    throw Aborted(message_);
  }
  using Clock = std::chrono::steady_clock;
  static std::chrono::duration<double> seconds(double s) {
    return std::chrono::duration<double>(s);
  }

  // Ends the world by itself when nobody else does within a few beats.
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
      if (const auto held = call.lock()) (*held)(message);
    changed_.notify_all();
  }

  void watch() {
    std::unique_lock lock(mutex_);
    while (!stop_) {
      hurry_ = false;
      ++state_.beat;
      auto state = state_;
      lock.unlock();
      state.limit = deadlines_->limit();  // before its calls: one that ends now is of this section
      state.read(*ledger_);
      std::string verdict;
      bool over = false;
      try {
        verdict = exchange(state, over);
      } catch (const Error& error) {
        if (!state.finished) verdict = store_lost(state, error.sentence());
        over = true;
      } catch (const std::exception& error) {  // no memory
        if (!state.finished) verdict = store_lost(state, error.what());
        over = true;
      }
      lock.lock();
      if (!verdict.empty()) end(verdict);
      said_finished_ = said_finished_ || state.finished;
      all_finished_ = all_finished_ || over;
      if (state.finished) changed_.notify_all();
      if (ended_ || over) break;
      changed_.wait_for(lock, seconds(options_.period_s), [this] { return stop_ || hurry_; });
    }
    if (!ended_) return;
    state_.ended = true;
    ++state_.beat;
    const auto state = state_;
    lock.unlock();
    say_ended(state);
    lock.lock();
    watch_for_stuck(lock);
  }
  // The others read why from this store: rank 0 stays until they have, or should have.
  void say_ended(const RankState& state) noexcept {
    try {
      store_->set(concat("state/", rank_), state.written());
      if (rank_ != 0) return;
      constexpr double patience_s = 1.5;
      const double start_s = ledger_->now_s();
      for (double now_s = start_s; now_s - start_s < patience_s; now_s = ledger_->now_s()) {
        hear_all(now_s);
        if (referee_.all_ended(now_s)) break;
        std::this_thread::sleep_for(seconds(options_.period_s / 4));
      }
    } catch (const std::exception&) {  // then the others have ended, or will by themselves
    }
  }
  // Says how this rank is; returns why the world ends, if it does.
  [[nodiscard]] std::string exchange(const RankState& state, bool& all_finished) {
    store_->set(concat("state/", rank_), state.written());
    if (auto verdict = store_->find("verdict")) return *verdict;
    const double now_s = ledger_->now_s();
    if (rank_ != 0) return rank_zero_silent(state, now_s);
    hear_all(now_s);
    auto verdict = referee_.judge(now_s);
    if (!verdict.empty()) store_->set("verdict", verdict);
    all_finished = referee_.all_finished();
    return verdict;
  }
  // Rank 0 looks at all others, and they at it.
  [[nodiscard]] std::string rank_zero_silent(const RankState& state, double now_s) {
    const auto text = store_->find("state/0");
    if (!text || *text != rank_zero_said_) {
      rank_zero_said_ = text.value_or("");
      rank_zero_heard_s_ = now_s;
      return {};
    }
    const double silence_s = now_s - rank_zero_heard_s_;
    const auto zero = RankState::parsed(*text);
    const bool longer = !deadlines_->fixed() && zero && zero->limit.longer_than(state.limit);
    const auto& limit = longer ? zero->limit : state.limit;
    if ((zero && zero->finished) || !limit.passed_by(silence_s)) return {};
    return store_lost(
        state, concat("nothing has been heard of it for ", static_cast<std::int64_t>(silence_s),
                      " s", limit.why.empty() ? "" : concat(", beyond ", limit)));
  }
  void hear_all(double now_s) {
    for (const auto& [key, text] : store_->list("state/")) {
      const int rank = rank_of(key);
      auto heard = RankState::parsed(text);
      if (rank >= 0 && rank < size_ && heard) referee_.hear(rank, std::move(*heard), now_s);
    }
  }
  [[nodiscard]] static int rank_of(const std::string& key) {
    int rank = -1;
    const auto start = key.data() + key.find('/') + 1;
    std::from_chars(start, key.data() + key.size(), rank);
    return rank;
  }
  [[nodiscard]] std::string store_lost(const RankState& state, const std::string& why) const {
    auto text = concat("rank 0, which watches over all in the ", store_->description(),
                       ", is gone (", why, "); rank ", rank_);
    const auto* call = state.busy();
    append_text(text, concat(" is in ", call == nullptr ? "no call" : to_text(*call)));
    if (!state.failed.empty()) append_text(text, concat(" and fails itself: ", state.failed));
    return text;
  }
  // The world has ended; does this rank notice?
  void watch_for_stuck(std::unique_lock<std::mutex>& lock) {
    if (!ended_ || !options_.stuck) return;
    const auto until =
        ended_at_ + std::chrono::duration_cast<Clock::duration>(seconds(options_.stuck_after_s));
    changed_.wait_until(lock, until, [this] { return stop_; });
    if (stop_ || noticed_) return;
    const auto message = message_;
    lock.unlock();
    options_.stuck(message);
    lock.lock();
  }

  std::shared_ptr<KeyValueStore> store_;
  int rank_;
  int size_;
  Options options_;
  std::shared_ptr<const Deadlines> deadlines_;
  std::shared_ptr<Ledger> ledger_;
  Referee referee_;             // the watching thread's, of rank 0
  std::string rank_zero_said_;  // the watching thread's, of the others
  double rank_zero_heard_s_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  RankState state_;
  std::vector<std::weak_ptr<AtEnd>> at_end_;
  std::vector<std::shared_ptr<void>> kept_;
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
