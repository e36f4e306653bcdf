// ProcessWatchdog watches one rank of a job of processes. The ranks publish their states in the job's store. Rank 0
// runs the failure detector on them, and the other ranks watch rank 0.
#pragma once

#include <dhp/comm/rendezvous/key_value_store.hpp>
#include <dhp/comm/watch/watchdog.hpp>

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace dhp {

namespace detail {
/// Thrown if a rank cannot connect to another rank, which may have ended.
class NotConnected : public Error {
 public:
  using Error::Error;
};
}  // namespace detail

class ProcessWatchdog final : public Watchdog {
 public:
  /// All ranks must have met in the store already.
  ProcessWatchdog(std::shared_ptr<KeyValueStore> store, int rank, int size, WatchOptions options)
      : Watchdog(rank, 1, size, std::move(options)), store_(std::move(store)) {
    grace_ = std::chrono::seconds(1);
    channels_period_s_ = options_.period_s;  // a check also reads the store, which all ranks share
    // Up to 100 ranks poll the store at most 400 times a second in total. With more, each does so every period_s.
    poll_period_s_ = std::clamp(0.0025 * size, 0.02, std::max(0.02, options_.period_s));
    start();
  }
  ~ProcessWatchdog() override { stop(); }

  [[nodiscard]] KeyValueStore& store() { return *store_; }
  /// Waits until another rank sets `key` in the store. Throws Aborted if the world ends first.
  [[nodiscard]] std::string get(const std::string& key) {
    const FlightRecorder::Open call(*recorder(rank()),
                                    {.text = concat("waiting for \"", key, "\" in the store")});
    for (double pause_s = 0.001;; pause_s = std::min({2 * pause_s, poll_period_s_, 0.05})) {
      check_alive();
      if (auto value = store_->find(key)) return std::move(*value);
      std::this_thread::sleep_for(seconds(pause_s));
    }
  }

  void abort(const std::string& why) override {
    publish([&] {
      if (!ended_ && own().failed.empty()) own().failed = why;
      noticed_ = true;
    });
    wait_for_end(concat("rank ", rank(), ": ", why));
  }
  /// Throws Aborted with the cause that the failure detector finds, or, if it finds none, with the broken connection.
  [[noreturn]] void lost(int peer, const std::string& why) override {
    publish([&] {
      auto& known = own().lost;
      if (std::find(known.begin(), known.end(), peer) == known.end()) known.push_back(peer);
    });
    wait_for_end(
        concat("rank ", rank(), " has lost its connection to rank ", peer, " (", why, ")"));
    throw_ended();
  }
  /// Rank 0 waits until all other ranks have finished, because it may serve the store.
  void finish(int) override {
    publish([&] { own().finished = true; });
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return ended_ || (rank() == 0 ? over_ : reported_finish_); });
    if (!ended_) return;
    noticed_ = true;
    throw Aborted(message_);
  }

 private:
  [[nodiscard]] detail::RankState& own() { return states_.front(); }
  // Ends the world with the reason `otherwise`, unless another rank ends it within a few seconds.
  void wait_for_end(const std::string& otherwise) {
    std::unique_lock lock(mutex_);
    const auto patience = seconds(2 + 4 * options_.period_s);
    changed_.wait_for(lock, patience, [this] { return ended_.load(); });
    end(otherwise);
    noticed_ = true;
  }

  [[nodiscard]] Decision decide(const States& states, const std::string& channel_error,
                                double now_s) override {
    const auto& state = states.front();
    try {
      write(state);
      if (auto failure = store_->find("failure")) return {std::move(*failure)};
      if (rank() != 0) {
        auto silent = rank_zero_silent(state, now_s);
        if (!silent.empty()) (void)store_->set_unless("failure", "failure", silent);
        else own_error_ = channel_error;
        return {silent.empty() ? channel_error : std::move(silent)};
      }
      read_states(now_s);
      auto why = detector_.find_failure(now_s);
      if (why.empty()) why = channel_error;
      if (!why.empty()) store_->set("failure", why);
      return {std::move(why), detector_.all_finished()};
    } catch (const Error& error) {
      return {state.finished ? "" : store_lost(state, error.sentence()), true};
    }
  }
  [[nodiscard]] bool poll() override {
    try {
      if (rank() != 0) return store_->find("failure").has_value();
      return store_->find("alarm") || !store_->list(detail::left_prefix).empty();
    } catch (const std::exception&) {  // the next look will find the reason
      return true;
    }
  }
  // Waits up to 1.5 s until the other ranks know that the world has ended: on rank 0, which may hold the store, and on
  // ranks with channels. An aborted NCCL kernel ends with garbage, which no other rank may take for a result.
  void publish_end(detail::RankState state, bool has_channels) noexcept override {
    try {
      if (state.failed.empty()) state.failed = own_error_;
      write(state);
      if (rank() != 0 && !has_channels) return;
      const auto all_ended = [&] {
        const double now_s = recorder(rank())->now_s();
        read_states(now_s);
        return detector_.all_ended(now_s);
      };
      (void)detail::poll_until(all_ended, 1.5);
    } catch (const std::exception&) {  // the other ranks have ended, or will end by themselves
    }
  }

  void write(const detail::RankState& state) {
    store_->set(concat("state/", rank()), state.written());
    if (!state.failed.empty() || !state.lost.empty()) store_->set("alarm", "");
  }
  // Reads which ranks have left before it reads the states, so that the state of such a rank is its last one. In the
  // other order, a rank that finishes and leaves between the two reads would seem lost.
  void read_states(double now_s) {
    for_ranks(detail::left_prefix, [&](int rank, const std::string&) { detector_.leave(rank); });
    for_ranks("state/", [&](int rank, const std::string& text) {
      if (auto reported = detail::RankState::parsed(text))
        detector_.update(rank, std::move(*reported), now_s);
    });
  }
  /// Calls use(rank, value) for each key of a rank with this prefix.
  void for_ranks(const std::string& prefix, auto use) {
    for (const auto& [key, value] : store_->list(prefix)) {
      const int rank = detail::number_of<int>(key.substr(prefix.size())).value_or(-1);
      if (rank >= 0 && rank < size_) use(rank, value);
    }
  }
  // Returns why rank 0 is lost; an empty text if it is not.
  [[nodiscard]] std::string rank_zero_silent(const detail::RankState& state, double now_s) {
    const bool left = store_->find(concat(detail::left_prefix, 0)).has_value();  // see read_states
    const auto text = store_->find("state/0");
    const auto zero = text ? detail::RankState::parsed(*text) : std::nullopt;
    const bool finished = zero && zero->finished;
    if (left && !finished) return store_lost(state, "its connection to the store has ended");
    if (!text || *text != rank_zero_said_) {
      rank_zero_said_ = text.value_or("");
      rank_zero_heard_s_ = now_s;
      return {};
    }
    const double silence_s = now_s - rank_zero_heard_s_;
    const auto& lost = state.lost;
    if (!finished && silence_s > detail::FailureDetector::lost_s &&
        std::find(lost.begin(), lost.end(), 0) != lost.end())
      return store_lost(state, "the connection to it has broken, and it says nothing");
    const bool longer = zero && zero->limit.longer_than(state.limit);
    const auto& limit = longer ? zero->limit : state.limit;
    if (finished || !limit.passed_by(silence_s)) return {};
    return store_lost(
        state, concat("nothing has been heard of it for ", static_cast<std::int64_t>(silence_s),
                      " s", limit.why.empty() ? "" : concat(", beyond ", limit)));
  }
  [[nodiscard]] std::string store_lost(const detail::RankState& state,
                                       const std::string& why) const {
    auto text = concat("rank 0, which watches over all in the ", store_->description(),
                       ", is gone (", why, "); rank ", rank(), " is in ", state.place());
    return state.failed.empty() ? text : concat(text, " and fails itself: ", state.failed);
  }

  std::shared_ptr<KeyValueStore> store_;
  std::string own_error_;  // error of a channel of this rank, for the other ranks
  std::string rank_zero_said_;
  double rank_zero_heard_s_ = 0;
};

}  // namespace dhp
