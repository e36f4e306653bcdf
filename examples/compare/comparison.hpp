// What the ledgers of several ranks say together: for each call that somebody waits in, which ranks are in it, which have
// ended it, and which have not come; and of all waits the one that explains the others.
#pragma once

#include <dhp/comm/ledger_file.hpp>
#include <dhp/comm/rank_list.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace examples {

using dhp::concat;
using Ranks = std::set<int>;
using Files = std::map<int, dhp::LedgerFile>;  // by rank

/// "4.2 s", "180 ms"
[[nodiscard]] inline std::string duration(double s) {
  char text[32];
  if (s < 1) std::snprintf(text, sizeof text, s < 0.01 ? "%.2f ms" : "%.0f ms", s * 1e3);
  else std::snprintf(text, sizeof text, s < 100 ? "%.1f s" : "%.0f s", s);
  return text;
}

[[nodiscard]] inline std::string shown(const dhp::LedgerFile::Call& call) {
  return dhp::call_text(call.operation, call.what);
}
[[nodiscard]] inline std::string shown_at(const dhp::LedgerFile::Call& call) {
  return concat(shown(call), " at ", call.where);
}
[[nodiscard]] inline std::string group_name(const std::string& group) {
  return group == "0@0" ? "world" : group;
}

/// Of what utc_text() makes, in seconds since 1970; 0 where it is something else.
[[nodiscard]] inline double utc_s(const std::string& text) {
  std::tm utc{};
  double seconds = 0;
  if (std::sscanf(text.c_str(), "%d-%d-%dT%d:%d:%lf", &utc.tm_year, &utc.tm_mon, &utc.tm_mday,
                  &utc.tm_hour, &utc.tm_min, &seconds) != 6)
    return 0;
  utc.tm_year -= 1900;
  utc.tm_mon -= 1;
  return static_cast<double>(::timegm(&utc)) + seconds;
}

/// An entry's key: calls of one channel come one after the other on each of its ranks.
struct CallKey {
  std::string channel;       // "0@0", "0@0:2>1"
  std::uint64_t number = 0;  // in the channel
  int from = -1, to = -1;    // of messages

  explicit CallKey(const std::string& key) : channel(key.substr(0, key.rfind('#'))) {
    const auto mark = key.rfind('#');
    if (mark != key.npos) number = std::strtoull(key.c_str() + mark + 1, nullptr, 10);
    const auto colon = channel.find(':');
    if (colon != channel.npos && !channel.starts_with("store:"))
      std::sscanf(channel.c_str() + colon, ":%d>%d", &from, &to);
  }
  [[nodiscard]] bool of_store() const { return channel.starts_with("store:"); }
  [[nodiscard]] bool is_message() const { return from >= 0 && to >= 0; }
  /// "12", "2>1 #7"
  [[nodiscard]] std::string shown() const {
    if (of_store()) return "";
    return is_message() ? concat(from, ">", to, " #", number) : concat(number);
  }
};

[[nodiscard]] inline bool unfinished(const dhp::LedgerFile::Call& call) {
  return !call.end_s || call.failed;
}
/// Messages that are sent are under way without their rank.
[[nodiscard]] inline bool waits(const dhp::LedgerFile::Call& call) {
  return unfinished(call) && (call.operation != "send" || !call.waits_for.empty());
}

/// A call that somebody waits in, over all its ranks.
struct SharedCall {
  CallKey key;
  std::string group;
  Ranks ended{}, inside{}, absent{}, unknown{};           // unknown: there is no file of theirs
  std::map<int, const dhp::LedgerFile::Call*> entries{};  // of those inside
  double longest_s = 0;                                   // that one of them has waited

  [[nodiscard]] const dhp::LedgerFile::Call& first() const { return *entries.begin()->second; }
  [[nodiscard]] bool disagree() const {
    return std::any_of(entries.begin(), entries.end(),
                       [&](const auto& each) { return each.second->what != first().what; });
  }
  /// "all_reduce of 5 f32 (sum) at a.cpp:7 of group world (call 12)"
  [[nodiscard]] std::string shown() const {
    const auto which = key.is_message() ? concat("message ", key.number, " from rank ", key.from,
                                                 " to rank ", key.to)
                                        : concat("call ", key.number);
    return concat(shown_at(first()), " of group ", group_name(group), " (", which, ")");
  }
};

/// How long a rank has been in a call, or was.
[[nodiscard]] inline double stay_s(const dhp::LedgerFile::Call& call, const dhp::LedgerFile& file) {
  return (call.end_s ? *call.end_s : file.now_s) - call.start_s;
}

class Comparison {
 public:
  explicit Comparison(const Files& files) : files_(files), size_(files.begin()->second.world_size) {
    for (const auto& [rank, file] : files_)
      for (const auto& entry : file.entries) {
        auto& latest = latest_[CallKey(entry.key).channel][rank];
        latest = std::max(latest, CallKey(entry.key).number);
        if (waits(entry)) add(entry);
      }
    for (auto& call : calls_) place_ranks(call);
    // Those that are waited in longest come first.
    std::stable_sort(calls_.begin(), calls_.end(), [](const auto& left, const auto& right) {
      return left.longest_s > right.longest_s;
    });
  }

  /// The calls that somebody waits in.
  [[nodiscard]] const std::vector<SharedCall>& calls() const { return calls_; }

  /// What explains it, in one sentence.
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
      if (auto text = all_have_come(call); !text.empty()) return text;
    return circle();
  }

 private:
  void add(const dhp::LedgerFile::Call& entry) {
    const auto same = [&](const auto& call) { return call.first().key == entry.key; };
    if (std::any_of(calls_.begin(), calls_.end(), same)) return;
    SharedCall call{CallKey(entry.key), entry.group};
    for (const auto& [rank, file] : files_)
      for (const auto& other : file.entries) {
        if (other.key != entry.key || !unfinished(other)) continue;
        call.entries[rank] = &other;
        if (waits(other)) call.longest_s = std::max(call.longest_s, stay_s(other, file));
      }
    calls_.push_back(std::move(call));
  }
  [[nodiscard]] Ranks members(const SharedCall& call) const {
    Ranks ranks;
    if (call.key.of_store()) return ranks;
    if (call.key.is_message()) return {call.key.from, call.key.to};
    if (call.group == "0@0")
      for (int rank = 0; rank < size_; ++rank) ranks.insert(rank);
    for (const auto& [rank, file] : files_)
      if (const auto known = file.groups.find(call.group); known != file.groups.end())
        ranks.insert(known->second.begin(), known->second.end());
    if (ranks.empty())
      for (const auto& [rank, number] : latest_.at(call.key.channel)) ranks.insert(rank);
    return ranks;
  }
  void place_ranks(SharedCall& call) const {
    for (const auto& [rank, entry] : call.entries) call.inside.insert(rank);
    const auto& latest = latest_.at(call.key.channel);
    for (const int rank : members(call)) {
      if (call.inside.contains(rank)) continue;
      const auto come = latest.find(rank);
      if (!files_.contains(rank)) call.unknown.insert(rank);
      else if (come != latest.end() && come->second >= call.key.number) call.ended.insert(rank);
      else call.absent.insert(rank);
    }
  }
  [[nodiscard]] bool waits_anywhere(int rank) const {
    const auto file = files_.find(rank);
    return file != files_.end() &&
           std::any_of(file->second.entries.begin(), file->second.entries.end(), waits);
  }

  [[nodiscard]] static std::string disagreement(const SharedCall& call) {
    for (const auto& [rank, entry] : call.entries)
      if (entry->what != call.first().what)
        return concat("ranks do not agree in call ", call.key.number, " of group ",
                      group_name(call.group), ": rank ", call.entries.begin()->first, " is in ",
                      shown_at(call.first()), ", rank ", rank, " in ", shown_at(*entry));
    return {};
  }
  [[nodiscard]] std::string not_come(const SharedCall& call, const Ranks& missing) const {
    const bool known = call.absent.contains(*missing.begin()), one = missing.size() == 1;
    const char* verb = known ? one ? " has" : " have" : one ? " is" : " are";
    auto text = concat(dhp::rank_list(missing), verb, known ? " not" : " not known to have",
                       " come to ", call.shown(), ", in which ", dhp::rank_list(call.inside),
                       call.inside.size() == 1 ? " has" : " have", " waited for ",
                       duration(call.longest_s));
    if (known && one) text += last_call(files_.at(*missing.begin()));
    if (!call.unknown.empty())
      text += concat("; there is no file of ", dhp::rank_list(call.unknown));
    return text;
  }
  [[nodiscard]] std::string last_call(const dhp::LedgerFile& file) const {
    std::string text = "; it has called nothing yet";
    if (!file.entries.empty()) {
      const auto& last = file.entries.back();
      text = concat("; its last call was ", shown_at(last));
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
  // Of those who are waited for, the one that came last.
  [[nodiscard]] std::string all_have_come(const SharedCall& call) const {
    int waiting = -1, last = -1;
    double shortest_s = 0;
    for (const auto& [rank, entry] : call.entries)
      for (const int other : entry->waits_for) {
        const auto found = call.entries.find(other);
        if (found == call.entries.end() && !call.ended.contains(other)) continue;
        const double s =
            found == call.entries.end() ? call.longest_s : stay_s(*found->second, files_.at(other));
        if (last >= 0 && s >= shortest_s) continue;
        waiting = rank, last = other, shortest_s = s;
      }
    if (last < 0) return {};
    const bool long_ago = shortest_s > call.longest_s / 2;
    return concat("rank ", waiting, " has waited for ",
                  duration(stay_s(*call.entries.at(waiting), files_.at(waiting))), " in ",
                  call.shown(), " for rank ", last,
                  call.ended.contains(last) ? std::string(", which has ended it")
                                            : concat(", which is in it for ", duration(shortest_s)),
                  long_ago ? "; what that one has sent has not arrived" : "");
  }
  // Everybody waits for somebody who waits, or for the store.
  [[nodiscard]] std::string circle() const {
    const auto& call = calls_.front();
    if (call.key.of_store())
      return concat(dhp::rank_list(call.inside), " has been ", call.first().what, " for ",
                    duration(call.longest_s));
    auto missing = call.absent;
    missing.insert(call.unknown.begin(), call.unknown.end());
    return concat("ranks wait for each other: ", dhp::rank_list(call.inside),
                  call.inside.size() == 1 ? " has" : " have", " waited for ",
                  duration(call.longest_s), " in ", call.shown(),
                  missing.empty()
                      ? std::string()
                      : concat(" for ", dhp::rank_list(missing), ", which waits elsewhere"));
  }

  const Files& files_;
  int size_;
  std::vector<SharedCall> calls_{};
  std::map<std::string, std::map<int, std::uint64_t>> latest_{};  // number of a channel, by rank
};

}  // namespace examples
