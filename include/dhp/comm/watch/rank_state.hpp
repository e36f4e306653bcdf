// RankState: what a rank lets the failure detector know of itself, a few times a second: that it lives, which calls it
// is in and which ranks they need, how long it may wait, and what it has seen go wrong. As text of lines with tabs.
#pragma once

#include <dhp/comm/watch/deadlines.hpp>
#include <dhp/comm/watch/flight_recorder.hpp>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dhp::comm {

struct RankState {
  /// A call under way; fields as FlightRecord's.
  struct OpenCall {
    std::string series{};
    std::uint64_t at = 0;
    std::string agreed{};
    std::string shown{};
    std::string where{};  ///< "trainer.hpp:120"
    double age_s = 0;
    std::vector<int> needs{};
    [[nodiscard]] std::string key() const { return concat(series, "#", at); }
    [[nodiscard]] bool is_send() const { return shown.starts_with("send"); }
    friend std::string to_text(const OpenCall& call) {
      return call.where.empty() ? call.shown : concat(call.shown, " at ", call.where);
    }
  };

  std::uint64_t beat = 0;   ///< grows with every report
  std::string name{};       ///< where it runs: "host node7, process 4711"
  bool finished = false;    ///< its body has returned
  bool ended = false;       ///< it knows that the world has ended
  std::string failed{};     ///< why it ends
  std::vector<int> lost{};  ///< ranks to which its connection has broken
  TimeLimit limit{};        ///< of its waits, by its own deadlines
  std::vector<OpenCall> under_way{};
  /// The last messages that have been sent: who receives one may expect another.
  std::vector<OpenCall> sent{};
  /// The highest place in each series among its last calls: whether it has come to a call that others are in.
  std::map<std::string, std::uint64_t> reached{};
  std::string last{};     ///< the call that ended last; empty: none
  double last_age_s = 0;  ///< since its end

  void read(const FlightRecorder& recorder) {
    const auto contents = recorder.contents();
    const double now_s = recorder.now_s();
    under_way.clear();
    sent.clear();
    reached.clear();
    // Records of one series follow each other in runs: one look-up a run.
    const RecordedGroup* group = nullptr;
    int from = -1, to = -1;
    std::uint64_t* highest = nullptr;
    const auto reach = [&](const FlightRecord& record) {
      if (!record.group) return;
      if (record.group.get() != group || record.from != from || record.to != to) {
        highest = &reached[record.series()];
        group = record.group.get(), from = record.from, to = record.to;
      }
      *highest = std::max(*highest, record.at);
    };
    const auto call_of = [&](const FlightRecord& record) -> OpenCall {
      return {record.series(),
              record.at,
              record.agreed(),
              record.shown(),
              record.group ? dhp::to_text(record.call.where) : "",
              record.since_s < 0 ? 0 : now_s - record.since_s,
              record.under_way() ? record.needs() : std::vector<int>()};
    };
    for (const auto& record : contents.ended) reach(record);
    for (const auto& record : contents.under_way) {
      if (record.since_s >= 0) reach(record);
      under_way.push_back(call_of(record));
    }
    constexpr std::size_t most_sent = 16;
    for (auto at = contents.ended.rbegin(); at != contents.ended.rend(); ++at)
      if (at->group && at->call.kind == CallKind::send && sent.size() < most_sent)
        sent.push_back(call_of(*at));
    if (contents.ended.empty()) return;
    const auto& record = contents.ended.back();
    last = to_text(record);
    last_age_s = now_s - record.end_s;
  }

  /// What the rank itself is in: a call that waits, where there is one. Null: nothing.
  [[nodiscard]] const OpenCall* busy() const {
    for (const auto& call : under_way)
      if (!call.needs.empty()) return &call;
    return under_way.empty() ? nullptr : &under_way.front();
  }

  [[nodiscard]] std::string written() const {
    auto text = line("beat", beat) + line("name", name) + line("finished", finished ? 1 : 0) +
                line("ended", ended ? 1 : 0) + line("failed", failed) +
                line("limit", limit.seconds, limit.why) + line("last", last, last_age_s);
    for (const int rank : lost) text += line("lost", rank);
    for (const auto& [series, at] : reached) text += line("reached", series, at);
    const auto add = [&](const char* key, const OpenCall& call) {
      text += line(key, call.series, call.at, call.agreed, call.shown, call.where, call.age_s);
    };
    for (const auto& call : sent) add("sent", call);
    for (const auto& call : under_way) {
      add("call", call);
      for (const int rank : call.needs) text += line("needs", rank);
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
    } else if (key == "last") {
      last = next(row, '\t');
      return number(row, last_age_s);
    } else if (key == "lost") return number(row, lost.emplace_back());
    else if (key == "reached") {
      const std::string series(next(row, '\t'));
      return number(row, reached[series]);
    } else if (key == "call" || key == "sent") {
      auto& call = (key == "call" ? under_way : sent).emplace_back();
      call.series = next(row, '\t');
      if (!number(next(row, '\t'), call.at)) return false;
      call.agreed = next(row, '\t');
      call.shown = next(row, '\t');
      call.where = next(row, '\t');
      return number(row, call.age_s);
    } else if (key == "needs")
      return !under_way.empty() && number(row, under_way.back().needs.emplace_back());
    else return false;
    return true;
  }
};

}  // namespace dhp::comm
