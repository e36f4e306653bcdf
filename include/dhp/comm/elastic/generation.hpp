// Generation is the numbered membership of an elastic job. A lost rank or a newcomer ends a generation. next_generation
// forms the next one from the remaining members and new processes.
#pragma once

#include <dhp/comm/elastic/next_layout.hpp>
#include <dhp/core/fields.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

namespace dhp {

/// A random number that identifies a process of an elastic job. A restarted process is a new member.
using MemberId = std::uint32_t;

struct ElasticOptions {
  /// Axes of the first generation, if there are enough ranks for one replica.
  int tensor = 1, pipeline = 1;
  LayoutRules layouts{};
  double timeout_s = 300;  ///< seconds for which the job waits for enough ranks
  /// Seconds to wait for a silent member to which no connection has broken.
  double silent_s = 2;
  double lost_s = 0.3;  ///< seconds to wait if a connection to the member has broken
  /// Seconds for which a process that holds the store, but is no longer a member, keeps it running when asked to stop.
  double store_stays_s = 30;
  /// Polled while this process waits as a newcomer or for enough ranks; if it returns true, the wait ends. Null: never.
  std::function<bool()> gives_up{};
};

namespace detail {
/// A member's report at the end of a generation.
struct MemberReport {
  std::int64_t steps = -1;  ///< updates in the member's state; -1: no state
  bool leaving = false;     ///< the member hands over its state and leaves the job
  void pass(Fields& fields) { fields(steps, leaving); }
};
}  // namespace detail

struct Generation {
  std::int64_t number = 0;  ///< counts from 1; 0: no generation yet
  MeshShape layout{};
  /// The member of each rank. The first layout.size() members train; the others are spares.
  std::vector<MemberId> members{};
  /// Number of updates in the state with which the generation starts; -1: no member has state. Members that were
  /// interrupted in their last update finish it first.
  std::int64_t steps = -1;

  void pass(detail::Fields& fields) {
    fields(number, layout.data, layout.tensor, layout.pipeline, members, steps);
  }
  /// Returns the rank of a member; nullopt for another process.
  [[nodiscard]] std::optional<int> rank_of(MemberId member) const {
    const auto at = std::find(members.begin(), members.end(), member);
    if (at == members.end()) return std::nullopt;
    return static_cast<int>(at - members.begin());
  }
};

namespace detail {

/// Returns the layout for a number of ranks. before: the layout of the previous generation. Without it the job begins,
/// with the axes of its options if there are enough ranks.
[[nodiscard]] inline std::optional<MeshShape> layout_for(std::size_t ranks,
                                                         const std::optional<MeshShape>& before,
                                                         const ElasticOptions& options) {
  const auto count = static_cast<int>(ranks);
  if (before) return next_layout(count, *before, options.layouts);
  const MeshShape asked{1, options.tensor, options.pipeline};
  auto with_these_axes = options.layouts;
  with_these_axes.step_time = nullptr;
  const auto first = next_layout(count, asked, with_these_axes);
  return first ? first : next_layout(count, asked, options.layouts);
}

/// Forms the generation after `last` from the reporting members and the newcomers, in their order. If the tensor and
/// pipeline axes stay, complete replicas stay together. Their gaps are filled by members of the same position in
/// another replica, then by spares, then by newcomers. Otherwise members keep their order. If too few members would
/// stay, the leaving ones stay as well, and all should save and stop. Returns nullopt if all together are too few.
[[nodiscard]] inline std::optional<Generation> next_generation(
    const Generation& last, const std::map<MemberId, MemberReport>& reports,
    const std::vector<MemberId>& newcomers, const ElasticOptions& options) {
  constexpr MemberId nobody = 0;
  auto staying = newcomers.size();
  for (const auto& [member, report] : reports) staying += report.leaving ? 0 : 1;
  std::optional<MeshShape> before;
  if (!reports.empty()) before = last.layout;
  auto layout = layout_for(staying, before, options);
  const bool may_leave = layout.has_value();
  if (!may_leave) layout = layout_for(newcomers.size() + reports.size(), before, options);
  if (!layout) return std::nullopt;
  Generation next{.number = last.number + 1, .layout = *layout};

  const auto count = as_size(layout->data);
  const auto tensor = as_size(layout->tensor);
  const auto places = tensor * as_size(layout->pipeline);
  // Position h + tensor * p (tensor index h, pipeline index p) of replica d is rank h + tensor * (d + data * p).
  const auto rank_at = [&](std::size_t replica, std::size_t place, int data) {
    return place % tensor + tensor * (replica + as_size(data) * (place / tensor));
  };
  const bool same_axes =
      before && before->tensor == layout->tensor && before->pipeline == layout->pipeline;
  std::vector<MemberId> pool, leaving;
  struct Replica {
    std::vector<MemberId> by_place;
    std::ptrdiff_t holes = 0;
  };
  std::vector<Replica> replicas;
  const auto leaves = [&](const MemberReport& report) { return report.leaving && may_leave; };
  const auto goes_on = [&](MemberId member) {
    const auto report = reports.find(member);
    return report != reports.end() && !leaves(report->second);
  };
  const int replicas_before = same_axes ? last.layout.data : 0;
  for (int d = 0; d < replicas_before; ++d) {
    Replica replica;
    for (std::size_t place = 0; place < places; ++place) {
      const auto member = last.members.at(rank_at(as_size(d), place, last.layout.data));
      replica.by_place.push_back(goes_on(member) ? member : nobody);
    }
    replica.holes = std::count(replica.by_place.begin(), replica.by_place.end(), nobody);
    replicas.push_back(std::move(replica));
  }
  std::stable_sort(replicas.begin(), replicas.end(),
                   [](const auto& a, const auto& b) { return a.holes < b.holes; });
  for (const auto& [member, report] : reports) {
    next.steps = std::max(next.steps, report.steps);
    if (leaves(report)) leaving.push_back(member);
  }

  // Members of surplus replicas, by their previous position.
  std::vector<std::vector<MemberId>> left_over(places);
  for (auto at = count; at < replicas.size(); ++at)
    for (std::size_t place = 0; place < places; ++place)
      if (const auto member = replicas[at].by_place[place]; member != nobody)
        left_over[place].push_back(member);
  replicas.resize(count, Replica{std::vector<MemberId>(places, nobody)});
  const auto fill = [&](MemberId& hole, std::vector<MemberId>& from) {
    if (hole != nobody || from.empty()) return;
    hole = from.front();
    from.erase(from.begin());
  };
  for (auto& replica : replicas)
    for (std::size_t place = 0; place < places; ++place)
      fill(replica.by_place[place], left_over[place]);
  for (const auto& members : left_over) pool.insert(pool.end(), members.begin(), members.end());
  for (auto rank = as_size(same_axes ? last.layout.size() : 0); rank < last.members.size(); ++rank)
    if (goes_on(last.members[rank])) pool.push_back(last.members[rank]);
  pool.insert(pool.end(), newcomers.begin(), newcomers.end());

  next.members.resize(count * places);
  for (std::size_t d = 0; d < count; ++d)
    for (std::size_t place = 0; place < places; ++place) {
      fill(replicas[d].by_place[place], pool);
      next.members[rank_at(d, place, next.layout.data)] = replicas[d].by_place[place];
    }
  next.members.insert(next.members.end(), pool.begin(), pool.end());
  next.members.insert(next.members.end(), leaving.begin(), leaving.end());
  return next;
}

}  // namespace detail
}  // namespace dhp
