// CallCounting counts a rank's calls and bytes by kind and group.
#pragma once

#include <dhp/comm/gather.hpp>
#include <dhp/comm/observe/observer.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace dhp {

/// Totals of the calls of one kind in one group.
struct CallCount {
  std::int64_t calls = 0;
  std::int64_t bytes = 0;  ///< bytes of this rank's inputs, or of its messages
  friend bool operator==(const CallCount&, const CallCount&) = default;
};

/// Counts one rank's calls since the last reset(), per group, which is identified by its world ranks. Thread-safe.
class CallCounts {
 public:
  using Group = std::vector<int>;  ///< world ranks of the members, in group order

  void add(const Group& group, const CommCall& call) {
    const std::lock_guard lock(mutex_);
    const auto at = index_of(group);
    if (at == groups_.size()) groups_.push_back({group});
    auto& count = groups_[at].calls[detail::as_size(call.kind)];
    ++count.calls;
    count.bytes += static_cast<std::int64_t>(call.bytes());
  }
  void reset() {
    const std::lock_guard lock(mutex_);
    groups_.clear();
  }

  [[nodiscard]] CallCount of(const Group& group, CallKind kind) const {
    const std::lock_guard lock(mutex_);
    const auto at = index_of(group);
    return at == groups_.size() ? CallCount() : groups_[at].calls[detail::as_size(kind)];
  }
  /// Returns dhp::sent_bytes, summed over all kinds of calls.
  [[nodiscard]] double sent_bytes(const Group& group) const {
    const std::lock_guard lock(mutex_);
    const auto at = index_of(group);
    double sum = 0;
    for (std::size_t kind = 0; at < groups_.size() && kind < kinds; ++kind)
      sum += dhp::sent_bytes(static_cast<CallKind>(kind), groups_[at].calls[kind].bytes,
                             static_cast<int>(group.size()));
    return sum;
  }

 private:
  static constexpr std::size_t kinds = detail::as_size(CallKind::recv) + 1;  // recv is the last
  struct Calls {
    Group group;
    std::array<CallCount, kinds> calls{};
  };
  /// Returns the number of groups if no call of this one was counted.
  [[nodiscard]] std::size_t index_of(const Group& group) const {
    std::size_t at = 0;
    while (at < groups_.size() && groups_[at].group != group) ++at;
    return at;
  }

  mutable std::mutex mutex_;
  std::vector<Calls> groups_;
};

namespace detail {
template <class Dev>
class CallCounting final : public CommObserver<Dev> {
 public:
  /// Counts the calls of `group`. dev must outlive this object and all groups split off.
  CallCounting(Dev& dev, CallCounts::Group group, int world_rank,
               std::shared_ptr<CallCounts> counts)
      : dev_(&dev), group_(std::move(group)), world_rank_(world_rank), counts_(std::move(counts)) {}

  using typename CommObserver<Dev>::Watch;
  [[nodiscard]] std::unique_ptr<Watch> before(Dev*, const CommCall& call) override {
    counts_->add(group_, call);
    return nullptr;
  }
  [[nodiscard]] std::shared_ptr<CommObserver<Dev>> of_part(Comm<Dev> part,
                                                           CallSite where) override {
    return std::make_shared<CallCounting>(
        *dev_, rows_of_all<Dev, int>(*dev_, part, {world_rank_}, where), world_rank_, counts_);
  }

 private:
  Dev* dev_;
  CallCounts::Group group_;
  int world_rank_;
  std::shared_ptr<CallCounts> counts_;
};
}  // namespace detail

/// Returns a `world` that counts its calls and the calls of groups split off. A group of one sends and counts nothing.
template <class Dev>
[[nodiscard]] Comm<Dev> counted(Dev& dev, Comm<Dev> world, std::shared_ptr<CallCounts> counts) {
  if (world.size() == 1) return world;
  auto counting = std::make_shared<detail::CallCounting<Dev>>(dev, detail::all_ranks(world.size()),
                                                              world.rank(), std::move(counts));
  return observe<Dev>(std::move(world), std::move(counting));
}

}  // namespace dhp
