// Compares the flight records of several ranks. For each call in which a rank waits, it tells which ranks are in the
// call, have ended it, or have not come. It also finds the wait that explains the others.
#pragma once

#include <dhp/comm/rank_list.hpp>

#include "../report/flight_record_file.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace examples {

using dhp::concat;
using Ranks = std::set<int>;
using Files = std::map<int, FlightRecordFile>;  // records by rank

/// Formats a duration, such as "4.2 s" or "180 ms".
[[nodiscard]] inline std::string duration(double s) {
  char text[32];
  if (s < 1) std::snprintf(text, sizeof text, s < 0.01 ? "%.2f ms" : "%.0f ms", s * 1e3);
  else std::snprintf(text, sizeof text, s < 100 ? "%.1f s" : "%.0f s", s);
  return text;
}

/// Describes a call, such as "recv of a message of 5 f32".
[[nodiscard]] inline std::string description(const FlightRecordFile::Call& call) {
  const bool message = call.operation == "send" || call.operation == "recv";
  return message ? concat(call.operation, " of a ", call.what) : call.what;
}
[[nodiscard]] inline std::string description_at(const FlightRecordFile::Call& call) {
  return call.where.empty() ? description(call) : concat(description(call), " at ", call.where);
}
[[nodiscard]] inline const char* have(const Ranks& ranks) {
  return ranks.size() == 1 ? " has" : " have";
}

/// Parses a time that utc_text() has written, in seconds since 1970; 0 for any other text.
[[nodiscard]] inline double utc_s(const std::string& text) {
  std::tm utc{};
  const char* const fraction = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &utc);
  if (fraction == nullptr) return 0;
  return static_cast<double>(::timegm(&utc)) + std::strtod(fraction, nullptr);
}

/// The key of an entry. Each rank makes the calls of one series in the order of their numbers.
struct CallKey {
  std::string series;        // such as "world", "world:2>1"
  std::uint64_t number = 0;  // position in the series
  int from = -1, to = -1;    // sender and receiver of a message

  explicit CallKey(const FlightRecordFile::Call& call)
      : series(call.key.substr(0, call.key.rfind('#'))) {
    const auto mark = call.key.rfind('#'), colon = series.rfind(':');
    if (mark != call.key.npos) number = std::strtoull(call.key.c_str() + mark + 1, nullptr, 10);
    if (colon != series.npos && !call.group.empty())
      std::sscanf(series.c_str() + colon, ":%d>%d", &from, &to);
  }
  [[nodiscard]] bool is_message() const { return from >= 0 && to >= 0; }
  /// Formats the number, with sender and receiver for a message: "12", "2>1 #7".
  [[nodiscard]] std::string description() const {
    return is_message() ? concat(from, ">", to, " #", number) : concat(number);
  }
};

/// A call in which at least one rank waits, with the state of all its ranks.
struct SharedCall {
  CallKey key;
  std::string group;
  Ranks ended{}, inside{}, absent{}, unknown{};            // unknown: ranks without a file
  std::map<int, const FlightRecordFile::Call*> entries{};  // entries of the ranks inside
  double longest_s = 0;                                    // longest wait of a rank inside

  [[nodiscard]] const FlightRecordFile::Call& first() const { return *entries.begin()->second; }
  [[nodiscard]] bool disagree() const {
    return std::ranges::any_of(entries,
                               [&](const auto& each) { return each.second->what != first().what; });
  }
  /// Describes the call, such as "all_reduce of 5 f32 (sum) at a.cpp:7 of group world (call 12)".
  [[nodiscard]] std::string description() const {
    const auto which = key.is_message() ? concat("message ", key.number, " from rank ", key.from,
                                                 " to rank ", key.to)
                                        : concat("call ", key.number);
    return concat(description_at(first()), " of group ", group, " (", which, ")");
  }
};

/// Returns the seconds that a rank spent in a call; an unfinished call lasts until the rank's file was written.
[[nodiscard]] inline double time_in_call_s(const FlightRecordFile::Call& call,
                                           const FlightRecordFile& file) {
  return (call.end_s ? *call.end_s : file.now_s) - call.start_s;
}

class FlightComparison {
 public:
  explicit FlightComparison(const Files& files) : files_(files) {
    for (const auto& [rank, file] : files_)
      for (const auto& entry : file.entries) {
        const CallKey key(entry);
        auto& latest = latest_[key.series][rank];
        latest = std::max(latest, key.number);
        if (entry.unfinished()) add(key, rank, entry);
      }
    for (auto& call : calls_) place_ranks(call);
    // The longest waits come first.
    std::ranges::stable_sort(calls_, std::greater<>(), &SharedCall::longest_s);
  }

  /// Returns the calls in which a rank waits, the longest wait first.
  [[nodiscard]] const std::vector<SharedCall>& calls() const { return calls_; }

  /// Explains the waits in one sentence.
  [[nodiscard]] std::string sentence() const {
    if (calls_.empty()) return "nothing is under way";
    for (const auto& call : calls_)
      if (call.disagree()) return disagreement(call);
    for (const auto& call : calls_)
      for (const auto* side : {&call.absent, &call.unknown}) {
        Ranks missing;
        for (const int rank : *side)
          if (!waits_anywhere(rank)) missing.insert(rank);
        if (!missing.empty()) return not_come(call, missing);
      }
    for (const auto& call : calls_)
      if (!call.group.empty() && call.absent.empty() && call.unknown.empty())
        return all_have_come(call);
    return circle();
  }

 private:
  void add(const CallKey& key, int rank, const FlightRecordFile::Call& entry) {
    auto found = std::ranges::find_if(
        calls_, [&](const auto& call) { return call.first().key == entry.key; });
    if (found == calls_.end()) found = calls_.insert(calls_.end(), SharedCall{key, entry.group});
    found->entries[rank] = &entry;
    found->longest_s = std::max(found->longest_s, time_in_call_s(entry, files_.at(rank)));
  }
  void place_ranks(SharedCall& call) const {
    Ranks needed;
    for (const auto& [rank, entry] : call.entries) {
      call.inside.insert(rank);
      needed.insert(entry->needs.begin(), entry->needs.end());
    }
    const auto& latest = latest_.at(call.key.series);
    for (const int rank : needed) {
      if (call.inside.contains(rank)) continue;
      const auto come = latest.find(rank);
      if (!files_.contains(rank)) call.unknown.insert(rank);
      else if (come != latest.end() && come->second >= call.key.number) call.ended.insert(rank);
      else call.absent.insert(rank);
    }
  }
  [[nodiscard]] bool waits_anywhere(int rank) const {
    return std::ranges::any_of(calls_,
                               [&](const auto& call) { return call.inside.contains(rank); });
  }

  [[nodiscard]] static std::string disagreement(const SharedCall& call) {
    for (const auto& [rank, entry] : call.entries)
      if (entry->what != call.first().what)
        return concat("ranks do not agree in call ", call.key.number, " of group ", call.group,
                      ": rank ", call.entries.begin()->first, " is in ",
                      description_at(call.first()), ", rank ", rank, " in ",
                      description_at(*entry));
    return {};
  }
  [[nodiscard]] static std::string in_which(const SharedCall& call) {
    return concat(call.description(), ", in which ", dhp::rank_list(call.inside), have(call.inside),
                  " waited for ", duration(call.longest_s));
  }
  [[nodiscard]] std::string not_come(const SharedCall& call, const Ranks& missing) const {
    const bool known = call.absent.contains(*missing.begin()), one = missing.size() == 1;
    auto text = concat(dhp::rank_list(missing),
                       known ? have(missing)
                       : one ? " is"
                             : " are",
                       known ? " not" : " not known to have", " come to ", in_which(call));
    if (known && one) text += last_call(files_.at(*missing.begin()));
    if (!call.unknown.empty())
      text += concat("; there is no file of ", dhp::rank_list(call.unknown));
    return text;
  }
  [[nodiscard]] std::string last_call(const FlightRecordFile& file) const {
    std::string text = "; it has called nothing yet";
    if (!file.entries.empty()) {
      const auto& last = file.entries.back();
      text = concat("; its last call was ", description_at(last));
      if (last.end_s)
        text += concat(", which ended ", duration(file.now_s - *last.end_s),
                       " before its file was written");
    }
    double newest_s = 0;
    for (const auto& [rank, other] : files_) newest_s = std::max(newest_s, utc_s(other.written));
    const double older_s = newest_s - utc_s(file.written);
    constexpr double at_once_s = 5;
    return older_s > at_once_s
               ? concat(text, "; that file is ", duration(older_s), " older than the newest one")
               : text;
  }
  [[nodiscard]] std::string all_have_come(const SharedCall& call) const {
    const auto text = concat("all its ranks have come to ", in_which(call));
    if (!call.ended.empty())
      return concat(text, "; ", dhp::rank_list(call.ended), have(call.ended), " ended it");
    const auto time_in = [&](const auto& of_rank) {
      return time_in_call_s(*of_rank.second, files_.at(of_rank.first));
    };
    const auto& last = *std::ranges::min_element(call.entries, {}, time_in);
    return concat(text, "; rank ", last.first, " came last, ", duration(time_in(last)), " ago");
  }
  // Describes the case in which every rank waits for another waiting rank, or for the store.
  [[nodiscard]] std::string circle() const {
    const auto& call = calls_.front();
    if (call.group.empty())
      return concat(dhp::rank_list(call.inside), have(call.inside), " been ", call.first().what,
                    " for ", duration(call.longest_s));
    auto missing = call.absent;
    missing.insert(call.unknown.begin(), call.unknown.end());
    return concat("ranks wait for each other: ", dhp::rank_list(call.inside), have(call.inside),
                  " waited for ", duration(call.longest_s), " in ", call.description(), " for ",
                  dhp::rank_list(missing), ", which waits elsewhere");
  }

  const Files& files_;
  std::vector<SharedCall> calls_{};
  std::map<std::string, std::map<int, std::uint64_t>> latest_{};  // last number by series, rank
};

}  // namespace examples
