// Ledger: what a rank's communicators have been asked to do, the last calls and those under way, each with its
// place in the source and what it waits for. It is what a rank says of itself when something hangs.
#pragma once

#include <dhp/comm/communicator.hpp>

#include <chrono>
#include <cstdint>
#include <exception>
#include <iterator>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace dhp {

/// The calls that are numbered together, of a call's key: "nccl" of "nccl#12", "nccl:0>1" of "nccl:0>1#3".
[[nodiscard]] inline std::string series_of(const std::string& key) {
  return key.substr(0, key.rfind('#'));
}

/// A call for people: "all_reduce of 5 f32 (sum)", "recv of a message of 5 f32".
[[nodiscard]] inline std::string call_text(const std::string& operation, const std::string& what) {
  return what.starts_with(operation) ? what : concat(operation, " of a ", what);
}

struct LedgerEntry {
  std::uint64_t number = 0;  ///< of this rank's calls, from 1
  /// Equal on the ranks that do the same call of the same group: "world#12", "2@0#7", "2@0:1>0#3".
  std::string key{};
  std::string operation{};  ///< "all_reduce"
  /// What all ranks of the call must agree about: "all_reduce of 5 f32 (sum)".
  std::string what{};
  std::int64_t bytes = 0;
  std::shared_ptr<const std::vector<int>> group{};  ///< ranks of the world; none: not known
  CallSite where{};
  double start_s = 0;            ///< since the ledger was opened
  double end_s = -1;             ///< negative: under way
  std::vector<int> waits_for{};  ///< ranks of the world that have yet to come, as far as is known
  /// A device waits, and does not say for whom: any of waits_for that have not begun this call themselves.
  bool on_device = false;
  bool failed = false;  ///< an exception has ended it

  [[nodiscard]] bool under_way() const { return end_s < 0; }
  [[nodiscard]] std::string shown() const { return call_text(operation, what); }
  friend std::string to_text(const LedgerEntry& entry) {
    return concat(entry.shown(), " at ", dhp::to_text(entry.where));
  }
};

/// Of one rank; its threads may share it.
class Ledger {
  using Entries = std::list<LedgerEntry>;

 public:
  /// capacity: calls that are remembered after their end.
  explicit Ledger(std::size_t capacity = 1024) : capacity_(capacity) {}

  /// A call from its beginning to its end, whichever way that comes.
  class Call {
   public:
    Call(Ledger& ledger, LedgerEntry entry)
        : ledger_(&ledger), entry_(ledger.begin(std::move(entry))) {}
    Call(Call&& other) noexcept
        : ledger_(std::exchange(other.ledger_, nullptr)),
          entry_(other.entry_),
          exceptions_(other.exceptions_) {}
    Call& operator=(Call&&) = delete;
    ~Call() {
      if (ledger_ != nullptr) ledger_->end(entry_, std::uncaught_exceptions() > exceptions_);
    }
    void waits_for(int rank) { ledger_->waits_for(entry_, rank); }
    void waits_no_more() { ledger_->waits_for(entry_, -1); }

   private:
    Ledger* ledger_;
    Entries::iterator entry_;
    int exceptions_ = std::uncaught_exceptions();
  };

  [[nodiscard]] double now_s() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - birth_).count();
  }
  /// When it was opened.
  [[nodiscard]] std::chrono::system_clock::time_point opened() const { return opened_; }
  /// Calls so far.
  [[nodiscard]] std::uint64_t calls() const {
    const std::lock_guard lock(mutex_);
    return calls_;
  }
  /// How many calls on a device have begun, by their series.
  [[nodiscard]] std::map<std::string, std::uint64_t> begun_on_device() const {
    const std::lock_guard lock(mutex_);
    return on_device_;
  }
  /// By their beginning.
  [[nodiscard]] std::vector<LedgerEntry> under_way() const {
    const std::lock_guard lock(mutex_);
    return {open_.begin(), open_.end()};
  }
  /// By their end, the last one last.
  [[nodiscard]] std::vector<LedgerEntry> ended() const {
    const std::lock_guard lock(mutex_);
    return {ended_.begin(), ended_.end()};
  }
  /// The one that ended last; its number is 0 where there is none.
  [[nodiscard]] LedgerEntry last() const {
    const std::lock_guard lock(mutex_);
    return ended_.empty() ? LedgerEntry() : ended_.back();
  }

 private:
  Entries::iterator begin(LedgerEntry entry) {
    const std::lock_guard lock(mutex_);
    if (spare_.empty()) spare_.emplace_back();
    if (entry.on_device) ++on_device_[series_of(entry.key)];
    entry.number = ++calls_;
    entry.start_s = now_s();
    spare_.front() = std::move(entry);
    open_.splice(open_.end(), spare_, spare_.begin());
    return std::prev(open_.end());
  }
  void waits_for(Entries::iterator entry, int rank) {
    const std::lock_guard lock(mutex_);
    entry->waits_for.clear();
    if (rank >= 0) entry->waits_for.push_back(rank);
  }
  void end(Entries::iterator entry, bool failed) noexcept {
    const std::lock_guard lock(mutex_);
    entry->end_s = now_s();
    entry->failed = failed;
    ended_.splice(ended_.end(), open_, entry);
    if (ended_.size() > capacity_) spare_.splice(spare_.end(), ended_, ended_.begin());
  }

  std::size_t capacity_;
  std::chrono::steady_clock::time_point birth_ = std::chrono::steady_clock::now();
  std::chrono::system_clock::time_point opened_ = std::chrono::system_clock::now();
  mutable std::mutex mutex_;
  std::uint64_t calls_ = 0;
  std::map<std::string, std::uint64_t> on_device_;
  Entries open_, ended_;
  Entries spare_;  // forgotten ones, whose memory the next take: a call allocates little
};

}  // namespace dhp
