// FailureDetector derives from the states of all ranks whether the world must end, and which rank is the cause: one
// that failed, is gone or silent, disagrees with the others, waits for a finished rank, or is overdue. All waits have
// the longest limit of any rank, because a rank in a step may indirectly wait for a rank that is saving.
#pragma once

#include <dhp/comm/watch/rank_state.hpp>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace dhp::detail {

class FailureDetector {
 public:
  /// A rank with a broken connection is gone after this many seconds of silence; a failed rank reports earlier.
  static constexpr double lost_s = 1;

  /// limit: limit of each wait and of a rank's silence, until a rank reports its own.
  FailureDetector(int ranks, TimeLimit limit) : limit_(std::move(limit)), seen_(as_size(ranks)) {}

  /// Records the state that rank `rank` reported at time now_s of a monotonic clock.
  void update(int rank, RankState state, double now_s) {
    auto& seen = seen_.at(as_size(rank));
    if (seen.reported && seen.state.beat == state.beat) return;
    seen.state = std::move(state);
    seen.last_report_s = now_s;
    seen.reported = true;
  }
  /// Records that rank `rank` sends no more reports, because its connection to the store has ended.
  void leave(int rank) { seen_.at(as_size(rank)).left = true; }
  [[nodiscard]] bool all_finished() const {
    for (const auto& seen : seen_)
      if (!seen.state.finished) return false;
    return true;
  }
  /// Returns whether all ranks know that the world has ended; finished, gone and silent ranks do not count.
  [[nodiscard]] bool all_ended(double now_s) const {
    for (int rank = 0; rank < ranks(); ++rank)
      if (!at(rank).state.ended && !at(rank).state.finished && !at(rank).left &&
          silence_s(rank, now_s) <= lost_s)
        return false;
    return true;
  }
  /// Returns why the world must end; an empty text if it need not.
  [[nodiscard]] std::string find_failure(double now_s) {
    if (start_s_ < 0) start_s_ = now_s;
    look_at_limits(now_s);
    forget_ranks_that_came();
    for (auto text :
         {gone(now_s), failed(), disagreement(), waits_for_finished(), late(now_s), silent(now_s)})
      if (!text.empty()) return text;
    return {};
  }

 private:
  struct Seen {
    RankState state{};
    double last_report_s = 0;
    bool reported = false, left = false;
  };
  using Call = RankState::OpenCall;

  [[nodiscard]] int ranks() const { return static_cast<int>(seen_.size()); }
  [[nodiscard]] const Seen& at(int rank) const { return seen_[as_size(rank)]; }
  [[nodiscard]] bool is_rank(int rank) const { return rank >= 0 && rank < ranks(); }
  [[nodiscard]] double silence_s(int rank, double now_s) const {
    return now_s - (at(rank).reported ? at(rank).last_report_s : start_s_);
  }
  [[nodiscard]] std::string named(int rank) const {
    const auto& name = at(rank).state.name;
    return name.empty() ? concat("rank ", rank) : concat("rank ", rank, " (", name, ")");
  }
  [[nodiscard]] static std::string seconds(double s) {
    const auto tenths = static_cast<std::int64_t>(s * 10);
    return s < 10 ? concat(tenths / 10, ".", tenths % 10, " s") : concat(tenths / 10, " s");
  }

  // A call waits only for ranks that have not reached it yet, so this removes the others from its needs.
  void forget_ranks_that_came() {
    for (auto& waiting : seen_)
      for (auto& call : waiting.state.under_way)
        std::erase_if(call.needs, [&](int rank) {
          if (!is_rank(rank)) return true;
          const auto& reached = at(rank).state.reached;
          const auto found = reached.find(call.series);
          return found != reached.end() && found->second >= call.at;
        });
  }
  void look_at_limits(double now_s) {
    const TimeLimit* longest = nullptr;
    for (const auto& seen : seen_)
      if (seen.reported && !seen.state.finished &&
          (longest == nullptr || seen.state.limit.longer_than(*longest)))
        longest = &seen.state.limit;
    if (longest == nullptr) return;
    if (limit_.longer_than(*longest)) shortened_s_ = now_s;
    limit_ = *longest;
  }
  /// Returns the age of a wait. If the limit has become shorter, only the time since the change counts.
  [[nodiscard]] double age_s(int rank, const Call& call, double now_s) const {
    return std::min(call.age_s + silence_s(rank, now_s), now_s - shortened_s_);
  }

  [[nodiscard]] std::string failed() const {
    for (int rank = 0; rank < ranks(); ++rank)
      if (const auto& why = at(rank).state.failed; !why.empty()) return said_by(rank, why);
    return {};
  }
  // Looks for lost ranks before failed ones, because the loss of one rank makes others fail: a library may report a
  // lost peer without saying which. A rank that fails by itself reports its own reason.
  [[nodiscard]] std::string gone(double now_s) const {
    for (int rank = 0; rank < ranks(); ++rank)
      if (at(rank).left && !at(rank).state.finished && at(rank).state.failed.empty())
        return concat(named(rank), " is gone: its connection to the store has ended; ",
                      last_seen(rank), first_busy());
    for (int witness = 0; witness < ranks(); ++witness)
      for (const int rank : at(witness).state.lost) {
        if (!is_rank(rank) || !at(rank).state.failed.empty() || silence_s(rank, now_s) <= lost_s)
          continue;
        if (at(rank).state.finished)
          return concat("rank ", witness, " in ", at(witness).state.place(), " is not done with ",
                        named(rank), ", which has finished");
        return concat(named(rank), " is gone: rank ", witness, " has lost its connection to it in ",
                      at(witness).state.place(), ", and it has not been heard of for ",
                      seconds(silence_s(rank, now_s)), "; ", last_seen(rank));
      }
    return {};
  }
  [[nodiscard]] std::string disagreement() const {
    std::map<std::string, std::pair<int, const Call*>> first;
    for (int rank = 0; rank < ranks(); ++rank)
      for (const auto* calls : {&at(rank).state.under_way, &at(rank).state.sent})
        for (const auto& call : *calls) {
          const auto [found, added] = first.try_emplace(call.key(), rank, &call);
          const auto& [other, its] = found->second;
          // An engine may refuse a wrong message itself, with a better error than this one. It has 0.5 s to do so.
          const auto fresh = [](const Call& of) { return of.is_recv() && of.age_s < 0.5; };
          if (!added && its->agreed != call.agreed && !fresh(*its) && !fresh(call))
            return concat("ranks do not agree: rank ", other, " calls ", to_text(*its), ", rank ",
                          rank, " calls ", to_text(call));
        }
    return {};
  }
  // Finds a call that waits for a finished rank. A send gets one second, because it may not wait at all.
  [[nodiscard]] std::string waits_for_finished() const {
    for (int rank = 0; rank < ranks(); ++rank)
      for (const auto& call : at(rank).state.under_way)
        for (const int other : call.needs)
          if (at(other).state.finished && (!call.is_send() || call.age_s > 1))
            return concat("rank ", rank, " waits in ", to_text(call), " for ", named(other),
                          ", which has finished");
    return {};
  }
  [[nodiscard]] std::string late(double now_s) const {
    for (int rank = 0; rank < ranks(); ++rank)
      for (const auto& call : at(rank).state.under_way) {
        if (!limit_.passed_by(age_s(rank, call, now_s)) || quiet(rank, now_s)) continue;
        if (const auto wait = for_quiet(now_s)) return late(*wait, now_at(wait->other, now_s));
        if (call.where.empty())
          return concat("rank ", rank, " is ", call.description, limit_text());
        if (call.needs.empty())
          return concat("rank ", rank, " is in ", to_text(call), ", to which all its ranks have ",
                        "come, but the network between them has not carried it for ",
                        seconds(age_s(rank, call, now_s)), limit_text());
        const auto wait = end_of_chain({rank, &call, call.needs.front()});
        return late(wait, now_at(wait.other, now_s));
      }
    return {};
  }
  [[nodiscard]] std::string silent(double now_s) const {
    for (int rank = 0; rank < ranks(); ++rank)
      if (!at(rank).state.finished && limit_.passed_by(silence_s(rank, now_s)))
        return concat(named(rank), " has not been heard of for ", seconds(silence_s(rank, now_s)),
                      ": it is stopped or cannot be reached; ", last_seen(rank), limit_text());
    return {};
  }

  struct Wait {
    int rank;
    const Call* call;
    int other;
  };
  [[nodiscard]] std::string late(const Wait& wait, const std::string& what_of_it) const {
    return concat("rank ", wait.rank, " waits in ", to_text(*wait.call), " for ", named(wait.other),
                  ", ", what_of_it, limit_text());
  }
  // The state of a quiet rank may be outdated.
  [[nodiscard]] bool quiet(int rank, double now_s) const {
    return silence_s(rank, now_s) > beats_s && !at(rank).state.finished;
  }
  // Finds a wait for a quiet rank: first for one that has not reached the call, else for one inside the call.
  [[nodiscard]] std::optional<Wait> for_quiet(double now_s) const {
    for (const bool come : {false, true})
      for (int rank = 0; rank < ranks(); ++rank)
        for (const auto& call : at(rank).state.under_way)
          for (const int other : come ? inside(call) : call.needs)
            if (quiet(other, now_s) && !quiet(rank, now_s)) return Wait{rank, &call, other};
    return {};
  }
  [[nodiscard]] std::vector<int> inside(const Call& call) const {
    std::vector<int> inside;
    for (int rank = 0; rank < ranks(); ++rank)
      for (const auto& other : at(rank).state.under_way)
        if (other.series == call.series && other.at == call.at) inside.push_back(rank);
    return inside;
  }
  // Follows the chain of waits to its end, the rank that is the cause. In a cycle, any rank will do.
  [[nodiscard]] Wait end_of_chain(Wait last) const {
    std::set<int> visited{last.rank};
    while (visited.insert(last.other).second) {
      const Call* next = nullptr;
      for (const auto& other : at(last.other).state.under_way)
        if (!other.needs.empty()) next = &other;
      if (next == nullptr) break;
      last = {last.other, next, next->needs.front()};
    }
    return last;
  }
  [[nodiscard]] std::string now_at(int rank, double now_s) const {
    if (const double s = silence_s(rank, now_s); s > beats_s)
      return concat("which has not been heard of for ", seconds(s),
                    " (it is stopped or cannot be reached); ", last_seen(rank));
    const auto& state = at(rank).state;
    if (const auto* call = state.busy()) return concat("which is alive and in ", to_text(*call));
    if (state.last.empty()) return "which is alive and has called nothing yet";
    return concat("which is alive and in no call; its last one, ", state.last, ", ended ",
                  seconds(state.last_age_s), " ago");
  }
  [[nodiscard]] std::string last_seen(int rank) const {
    const auto& state = at(rank).state;
    if (const auto* call = state.busy()) return concat("it was in ", to_text(*call));
    if (state.last.empty()) return "it had reported no call";
    return concat("its last call was ", state.last);
  }
  [[nodiscard]] std::string first_busy() const {
    for (int rank = 0; rank < ranks(); ++rank)
      if (const auto* call = at(rank).state.busy(); call != nullptr && !at(rank).left)
        return concat("; rank ", rank, " is in ", to_text(*call));
    return {};
  }
  [[nodiscard]] std::string limit_text() const { return concat(", beyond ", limit_); }

  // A rank that has been silent for this many seconds has missed several reports.
  static constexpr double beats_s = 2;
  TimeLimit limit_;  // current limit of all waits of the world
  double shortened_s_ = -1e300;
  std::vector<Seen> seen_;
  double start_s_ = -1;
};

}  // namespace dhp::detail
