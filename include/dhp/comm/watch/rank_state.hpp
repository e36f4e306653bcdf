// RankState is a rank's periodic report to the failure detector: a sign of life, its calls and the ranks that they wait
// for, how long it may wait, and the errors that it saw.
#pragma once

#include <dhp/comm/watch/deadlines.hpp>
#include <dhp/comm/watch/flight_recorder.hpp>
#include <dhp/core/fields.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dhp::detail {

struct RankState {
  /// A pending call; the fields are those of FlightRecord.
  struct OpenCall {
    std::string series{};
    std::uint64_t at = 0;
    std::string agreed{}, description{};
    std::string where{};  ///< call site, such as "trainer.hpp:120"
    double age_s = 0;
    std::vector<int> needs{};
    void pass(Fields& fields) { fields(series, at, agreed, description, where, age_s, needs); }
    [[nodiscard]] std::string key() const { return concat(series, "#", at); }
    [[nodiscard]] bool is_send() const { return description.starts_with("send"); }
    [[nodiscard]] bool is_recv() const { return description.starts_with("recv"); }
    friend std::string to_text(const OpenCall& call) {
      return call.where.empty() ? call.description : concat(call.description, " at ", call.where);
    }
  };

  std::uint64_t beat = 0;   ///< number of the report
  std::string name{};       ///< process of the rank: "host node7, process 4711"
  bool finished = false;    ///< the rank's body has returned
  bool ended = false;       ///< the rank knows that the world has ended
  std::string failed{};     ///< why the rank failed; empty if it did not
  std::vector<int> lost{};  ///< ranks to which the connection has broken
  TimeLimit limit{};        ///< limit of the rank's waits, by its own deadlines
  std::vector<OpenCall> under_way{};
  /// The latest sent messages, for comparison with their receivers' calls.
  std::vector<OpenCall> sent{};
  /// The highest call number in each series. It shows whether the rank has reached a call in which others wait.
  std::map<std::string, std::uint64_t> reached{};
  std::string last{};     ///< the call that ended last; empty if there is none
  double last_age_s = 0;  ///< seconds since the last call ended

  /// Reads the recorder's calls above number `after`; earlier calls belong to a past world with the same group names.
  void read(const FlightRecorder& recorder, std::uint64_t after = 0) {
    const auto contents = recorder.contents(after);
    const double now_s = recorder.now_s();
    under_way.clear();
    sent.clear();
    reached.clear();
    // Neighboring records often have the same series, so the series is looked up only when it changes.
    const RecordedGroup* group = nullptr;
    int from = -1, to = -1;
    std::uint64_t* highest = nullptr;
    const auto reach = [&](const FlightRecord& record) {
      if (!record.group || record.failed) return;
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
              record.description(),
              record.group ? dhp::to_text(record.call.where) : "",
              record.since_s < 0 ? 0 : now_s - record.since_s,
              record.under_way() ? record.needs() : std::vector<int>()};
    };
    for (const auto& record : contents.ended) reach(record);
    for (const auto& record : contents.under_way) {
      if (record.since_s >= 0) reach(record);
      under_way.push_back(call_of(record));
    }
    constexpr std::size_t max_sent = 16;
    for (auto at = contents.ended.rbegin(); at != contents.ended.rend(); ++at)
      if (at->group && !at->failed && at->call.kind == CallKind::send && sent.size() < max_sent)
        sent.push_back(call_of(*at));
    if (contents.ended.empty()) return;
    const auto& record = contents.ended.back();
    last = to_text(record);
    last_age_s = now_s - record.end_s;
  }

  /// Returns a pending call of the rank, one that waits for other ranks if possible; null if there is none.
  [[nodiscard]] const OpenCall* busy() const {
    for (const auto& call : under_way)
      if (!call.needs.empty()) return &call;
    return under_way.empty() ? nullptr : &under_way.front();
  }

  /// Returns the call that busy() returns, for messages; "no call" if there is none.
  [[nodiscard]] std::string place() const {
    const auto* call = busy();
    return call == nullptr ? "no call" : to_text(*call);
  }
  [[nodiscard]] std::string written() const { return Fields::written(*this); }
  [[nodiscard]] static std::optional<RankState> parsed(std::string_view bytes) {
    return Fields::parsed<RankState>(bytes);
  }
  void pass(Fields& fields) {
    std::vector<std::pair<std::string, std::uint64_t>> places(reached.begin(), reached.end());
    fields(beat, name, finished, ended, failed, lost, limit.seconds, limit.why, under_way, sent,
           places, last, last_age_s);
    reached = {places.begin(), places.end()};
  }
};

}  // namespace dhp::detail
