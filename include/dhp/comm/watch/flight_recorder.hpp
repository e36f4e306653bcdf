// FlightRecorder keeps the pending and the latest calls of a rank's communicators, with their call sites.
#pragma once

#include <dhp/comm/communicator.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <iterator>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace dhp {

namespace detail {
/// A group of ranks. Its name is equal on all of its ranks, and differs from the names of their other groups.
struct RecordedGroup {
  std::string name{};
  std::vector<int> members{};  ///< world ranks, in group order
};
}  // namespace detail

struct FlightRecord {
  std::shared_ptr<const detail::RecordedGroup> group{};
  CommCall call{};
  int rank = 0;              ///< world rank that makes the call
  int from = -1, to = -1;    ///< world ranks of a message's sender and receiver
  std::uint64_t at = 0;      ///< number of the call in its series(), from 1
  std::uint64_t number = 0;  ///< number among all calls of this rank, from 1
  std::string text{};        ///< name of an operation that is no communicator call
  int more = 0;              ///< number of further calls of a recorded step in this record
  double start_s = 0;        ///< seconds from the recorder's creation to the call
  double since_s = 0;        ///< start of the wait; negative until the device reaches the call
  double end_s = -1;         ///< end of the call; negative while it is under way
  bool failed = false;       ///< an exception has ended the call

  [[nodiscard]] bool under_way() const { return end_s < 0; }
  /// Returns the series in which calls are numbered: "world" of "world#12", "world:0>1" of "world:0>1#3".
  [[nodiscard]] std::string series() const {
    if (!group) return text;
    return call.is_message() ? concat(group->name, ":", from, ">", to) : group->name;
  }
  /// Returns an id of the call: equal on all of its ranks, and different for every other call.
  [[nodiscard]] std::string key() const { return concat(series(), "#", at); }
  [[nodiscard]] std::string agreed() const {
    return group ? concat(call.agreed(), more_text()) : text;
  }
  [[nodiscard]] std::string description() const {
    return group ? concat(call.description(), more_text()) : text;
  }
  /// Returns the world ranks that must take part before the call can end.
  [[nodiscard]] std::vector<int> needs() const {
    if (!group) return {};
    if (call.is_message()) return {from == rank ? to : from};
    auto others = group->members;
    std::erase(others, rank);
    return others;
  }
  friend std::string to_text(const FlightRecord& record) {
    return record.group ? concat(record.description(), " at ", record.call.where)
                        : record.description();
  }

 private:
  [[nodiscard]] std::string more_text() const {
    return more > 0 ? concat(" and ", more, " more of a recorded step") : "";
  }
};

/// Records the calls of one rank. The rank's threads may share the recorder.
class FlightRecorder {
  using Records = std::list<FlightRecord>;

 public:
  /// capacity: number of ended calls that are kept.
  explicit FlightRecorder(std::size_t capacity = 1024) : capacity_(capacity) {}

  /// A pending call, which ends with this object. If an exception destroys the object, the call has failed.
  class Open {
   public:
    /// count: the counter of the record's series, which this call increments. A failed call is subtracted again,
    /// because an engine refuses a call before it reaches the other ranks, whose counters do not include it.
    Open(FlightRecorder& recorder, FlightRecord record, std::shared_ptr<std::uint64_t> count = {})
        : recorder_(&recorder),
          count_(std::move(count)),
          record_(recorder.begin(std::move(record), count_.get())) {}
    Open(Open&& other) noexcept
        : recorder_(std::exchange(other.recorder_, nullptr)),
          count_(std::move(other.count_)),
          record_(other.record_),
          exceptions_(other.exceptions_) {}
    Open& operator=(Open&&) = delete;
    [[nodiscard]] const FlightRecord& record() const { return *record_; }
    /// Records whether the device has reached this call. Before that, the call waits for no rank.
    void on_device(bool begun) { recorder_->on_device(record_, begun); }
    ~Open() {
      if (recorder_ != nullptr)
        recorder_->end(record_, std::uncaught_exceptions() > exceptions_, count_.get());
    }

   private:
    FlightRecorder* recorder_;
    std::shared_ptr<std::uint64_t> count_;
    Records::iterator record_;
    int exceptions_ = std::uncaught_exceptions();
  };

  [[nodiscard]] double now_s() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - birth_).count();
  }
  [[nodiscard]] std::uint64_t calls() const {
    const std::lock_guard lock(mutex_);
    return calls_;
  }
  /// Ended calls are in the order of their ends, pending calls in the order of their starts.
  struct Contents {
    std::vector<FlightRecord> ended{}, under_way{};
  };
  /// Returns the calls with numbers above `after`.
  [[nodiscard]] Contents contents(std::uint64_t after = 0) const {
    const std::lock_guard lock(mutex_);
    Contents found;
    const auto later = [&](const FlightRecord& record) { return record.number > after; };
    std::copy_if(ended_.begin(), ended_.end(), std::back_inserter(found.ended), later);
    std::copy_if(open_.begin(), open_.end(), std::back_inserter(found.under_way), later);
    return found;
  }

 private:
  Records::iterator begin(FlightRecord record, std::uint64_t* count) {
    const std::lock_guard lock(mutex_);
    if (count != nullptr) record.at = ++*count;
    if (spare_.empty()) spare_.emplace_back();
    record.number = ++calls_;
    record.start_s = record.since_s = now_s();
    spare_.front() = std::move(record);
    open_.splice(open_.end(), spare_, spare_.begin());
    return std::prev(open_.end());
  }
  void on_device(Records::iterator record, bool begun) {
    const std::lock_guard lock(mutex_);
    record->since_s = begun ? now_s() : -1;
  }
  void end(Records::iterator record, bool failed, std::uint64_t* count) noexcept {
    const std::lock_guard lock(mutex_);
    if (failed && count != nullptr && *count == record->at) --*count;
    record->end_s = now_s();
    record->failed = failed;
    ended_.splice(ended_.end(), open_, record);
    if (ended_.size() > capacity_) spare_.splice(spare_.end(), ended_, ended_.begin());
  }

  std::size_t capacity_;
  std::chrono::steady_clock::time_point birth_ = std::chrono::steady_clock::now();
  mutable std::mutex mutex_;
  std::uint64_t calls_ = 0;
  Records open_, ended_;
  Records spare_;  // memory reused for new records
};

namespace detail {

/// Records the calls of one rank in one group.
class GroupRecorder {
 public:
  GroupRecorder(std::shared_ptr<FlightRecorder> recorder, int rank, int size)
      : GroupRecorder(std::move(recorder), rank, {"world", all_ranks(size)}) {}

  /// Returns the recorder of a subgroup with these world ranks. All ranks of this group must call this.
  [[nodiscard]] GroupRecorder of_part(std::vector<int> members) {
    auto name = concat(group_->name, ".", ++parts_, "@", members.front());
    return {recorder_, rank_, {std::move(name), std::move(members)}};
  }
  [[nodiscard]] const std::vector<int>& members() const { return group_->members; }
  [[nodiscard]] int rank() const { return rank_; }

  [[nodiscard]] FlightRecorder::Open begin(const CommCall& call, int more = 0) {
    FlightRecord record{.group = group_, .call = call, .rank = rank_, .more = more};
    if (call.is_message()) {
      const auto other = as_size(call.other);
      const bool sends = call.kind == CallKind::send;
      record.from = sends ? rank_ : members().at(other);
      record.to = sends ? members().at(other) : rank_;
      auto& counts = sends ? counts_->sent : counts_->received;
      return {*recorder_, std::move(record), counted(counts.at(other))};
    }
    return {*recorder_, std::move(record), counted(counts_->collectives)};
  }

 private:
  GroupRecorder(std::shared_ptr<FlightRecorder> recorder, int rank, RecordedGroup group)
      : recorder_(std::move(recorder)),
        rank_(rank),
        counts_(std::make_shared<Counts>(group.members.size())),
        group_(std::make_shared<const RecordedGroup>(std::move(group))) {}

  /// Counters of calls. A pending call shares their ownership.
  struct Counts {
    explicit Counts(std::size_t ranks) : sent(ranks), received(ranks) {}
    std::uint64_t collectives = 0;
    std::vector<std::uint64_t> sent, received;  // by the other rank of the group
  };
  [[nodiscard]] std::shared_ptr<std::uint64_t> counted(std::uint64_t& count) const {
    return {counts_, &count};
  }

  std::shared_ptr<FlightRecorder> recorder_;
  int rank_;
  std::uint64_t parts_ = 0;
  std::shared_ptr<Counts> counts_;
  std::shared_ptr<const RecordedGroup> group_;
};

}  // namespace detail

}  // namespace dhp
