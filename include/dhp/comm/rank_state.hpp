// RankState: what a rank lets the others know of itself, a few times a second: that it lives, which calls it is
// in and for whom they wait, how long it may wait, and what it has seen go wrong. As text of lines with tabs.
#pragma once

#include <dhp/comm/deadlines.hpp>
#include <dhp/comm/ledger.hpp>

#include <charconv>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dhp {

struct RankState {
  struct Call {
    std::string key;    ///< as LedgerEntry's
    std::string what;   ///< what all must agree about
    std::string shown;  ///< the same for people
    std::string where;  ///< "trainer.hpp:120"
    double age_s = 0;
    std::vector<int> waits_for{};
    friend std::string to_text(const Call& call) { return concat(call.shown, " at ", call.where); }
  };

  std::uint64_t beat = 0;   ///< grows with every report
  std::string name{};       ///< where it runs: "host node7, process 4711"
  bool finished = false;    ///< its body has returned
  bool ended = false;       ///< it knows that the world has ended
  std::string failed{};     ///< why it ends
  std::vector<int> lost{};  ///< ranks to which its connection has broken
  TimeLimit limit{};        ///< of its waits, by its own deadlines
  std::uint64_t calls = 0;  ///< so far
  std::vector<Call> under_way{};
  /// How many calls on a device have begun, by their series.
  std::map<std::string, std::uint64_t> begun_on_device{};
  std::string last{};     ///< the call that ended last; empty: none
  double last_age_s = 0;  ///< since its end

  /// What the ledger says.
  void read(const Ledger& ledger) {
    const double now = ledger.now_s();
    calls = ledger.calls();
    begun_on_device = ledger.begun_on_device();
    under_way.clear();
    for (const auto& entry : ledger.under_way())
      under_way.push_back({entry.key, entry.what, entry.shown(), dhp::to_text(entry.where),
                           now - entry.start_s, entry.waits_for});
    const auto entry = ledger.last();
    last = entry.number == 0 ? "" : to_text(entry);
    last_age_s = now - entry.end_s;
  }

  /// What the rank itself is in: messages that it has sent are under way without it. Null: nothing.
  [[nodiscard]] const Call* busy() const {
    for (const auto& call : under_way)
      if (!call.waits_for.empty()) return &call;
    for (const auto& call : under_way)
      if (!call.shown.starts_with("send")) return &call;
    return nullptr;
  }

  [[nodiscard]] std::string written() const {
    auto text = line("beat", beat) + line("name", name) + line("finished", finished ? 1 : 0) +
                line("ended", ended ? 1 : 0) + line("failed", failed) +
                line("limit", limit.seconds, limit.why) + line("calls", calls) +
                line("last", last, last_age_s);
    for (const int rank : lost) text += line("lost", rank);
    for (const auto& [series, count] : begun_on_device) text += line("begun", series, count);
    for (const auto& call : under_way) {
      text += line("call", call.key, call.what, call.shown, call.where, call.age_s);
      for (const int rank : call.waits_for) text += line("waits", rank);
    }
    return text;
  }
  /// None where the text is not one.
  [[nodiscard]] static std::optional<RankState> parsed(std::string_view text) {
    RankState state;
    while (!text.empty()) {
      auto row = next(text, '\n');
      if (!state.take(next(row, '\t'), row)) return std::nullopt;
    }
    return state;
  }

 private:
  template <class... Fields>
  static std::string line(const char* key, const Fields&... fields) {
    std::string text(key);
    const auto add = [&](std::string field) {
      for (char& c : field)
        if (c == '\t' || c == '\n') c = ' ';
      text += '\t';
      text += field;
    };
    (add(concat(fields)), ...);
    return text + '\n';
  }
  // Up to the separator, which is taken away with it.
  static std::string_view next(std::string_view& rest, char separator) {
    const auto end = rest.find(separator);
    const auto field = rest.substr(0, end);
    rest.remove_prefix(end == rest.npos ? rest.size() : end + 1);
    return field;
  }
  template <class Number>
  static bool number(std::string_view text, Number& value) {
    const auto end = text.data() + text.size();
    const auto result = std::from_chars(text.data(), end, value);
    return result.ec == std::errc() && result.ptr == end;
  }
  bool take(std::string_view key, std::string_view row) {
    if (key == "beat") return number(row, beat);
    if (key == "name") name = row;
    else if (key == "finished") finished = row == "1";
    else if (key == "ended") ended = row == "1";
    else if (key == "failed") failed = row;
    else if (key == "limit") {
      if (!number(next(row, '\t'), limit.seconds)) return false;
      limit.why = row;
    } else if (key == "calls") return number(row, calls);
    else if (key == "last") {
      last = next(row, '\t');
      return number(row, last_age_s);
    } else if (key == "begun") {
      const std::string series(next(row, '\t'));
      return number(row, begun_on_device[series]);
    } else if (key == "lost") return number(row, lost.emplace_back());
    else if (key == "call") {
      auto& call = under_way.emplace_back();
      call.key = next(row, '\t');
      call.what = next(row, '\t');
      call.shown = next(row, '\t');
      call.where = next(row, '\t');
      return number(row, call.age_s);
    } else if (key == "waits") {
      return !under_way.empty() && number(row, under_way.back().waits_for.emplace_back());
    } else return false;
    return true;
  }
};

}  // namespace dhp
