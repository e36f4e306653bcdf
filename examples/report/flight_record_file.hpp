// FlightRecordFile: the content of a rank's flight recorder at one moment, as a file for people and for dhp_compare,
// which compares the files of several ranks. Needs nlohmann/json.
#pragma once

#include <dhp/comm/watch/flight_recorder.hpp>
#include <dhp/core/open_file.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace examples {

/// Formats a time, such as "2026-03-01T12:00:00.250Z".
[[nodiscard]] inline std::string utc_text(std::chrono::system_clock::time_point when) {
  const auto ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(when.time_since_epoch()).count();
  const auto seconds = static_cast<std::time_t>(ms / 1000);
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  char text[64];
  const auto end = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
  std::snprintf(text + end, sizeof text - end, ".%03dZ", static_cast<int>(ms % 1000));
  return text;
}

/// Returns the path of a rank's file: for "run/flight.json" and rank 3, "run/flight.rank3.json".
[[nodiscard]] inline std::string flight_record_path(const std::string& file, int rank) {
  const std::filesystem::path path(file);
  auto name = path.stem().string() + dhp::concat(".rank", rank) + path.extension().string();
  return (path.parent_path() / name).string();
}

struct FlightRecordFile {
  struct Call {
    std::uint64_t number = 0;
    std::string key{};
    std::string operation{};  ///< such as "all_reduce"; empty: not a call of a communicator
    std::string what{};       ///< description that its ranks must agree on
    std::string group{};      ///< such as "world"
    std::string where{};      ///< such as "trainer.hpp:120"
    std::uint64_t bytes = 0;
    double start_s = 0;
    std::optional<double> end_s{};  ///< none: the call is still running
    bool failed = false;
    std::vector<int> needs{};  ///< the other ranks of an unfinished or failed call

    [[nodiscard]] bool unfinished() const { return !end_s || failed; }
  };

  int rank = 0;
  int world_size = 1;
  std::string name{};           ///< the rank's place, such as "host node7, process 4711"
  std::string written{};        ///< time of writing, in UTC
  double now_s = 0;             ///< time of writing, in seconds since the recorder was opened
  std::uint64_t calls = 0;      ///< number of calls so far; older ones are forgotten
  std::vector<Call> entries{};  ///< sorted by number

  /// Returns the current records.
  [[nodiscard]] static FlightRecordFile of(const dhp::FlightRecorder& recorder, int rank,
                                           int world_size, std::string name) {
    FlightRecordFile file{.rank = rank, .world_size = world_size, .name = std::move(name)};
    const auto contents = recorder.contents();
    file.calls = recorder.calls();
    file.now_s = recorder.now_s();
    file.written = utc_text(std::chrono::system_clock::now());
    for (const auto* records : {&contents.ended, &contents.under_way})
      for (const auto& record : *records) file.entries.push_back(call_of(record));
    std::ranges::sort(file.entries, {}, &Call::number);
    return file;
  }

  /// Replaces the file atomically, with one line for each field and each call.
  void write(const std::string& path) const {
    const Json fields{{"format", format}, {"rank", rank},       {"world_size", world_size},
                      {"name", name},     {"written", written}, {"now_s", now_s},
                      {"calls", calls}};
    std::string text = "{\n";
    for (const auto& [key, value] : fields.items())
      text += dhp::concat(" \"", key, "\": ", line(value), ",\n");
    text += " \"entries\": [";
    for (const auto& call : entries)
      text += dhp::concat(&call == &entries.front() ? "\n  " : ",\n  ", line(json_of(call)));
    dhp::replace_file(path, text + "\n ]\n}\n");
  }

  /// Reads a file. Throws Error with its path and the fault if it is damaged or of another kind.
  [[nodiscard]] static FlightRecordFile read(const std::string& path) {
    constexpr std::uint64_t max_bytes = std::uint64_t{1} << 28;
    const dhp::OpenFile stored(path, O_RDONLY);
    const auto size = stored.size();
    dhp::check(size <= max_bytes, path, " is no flight record: it has ", size, " bytes");
    const auto text = stored.text(0, static_cast<std::size_t>(size));
    try {
      return parsed(Json::parse(text));
    } catch (const dhp::Error& error) {
      dhp::fail(path, " is no flight record: ", error.sentence());
    } catch (const nlohmann::json::exception& error) {
      dhp::fail(path, " is no flight record: ", error.what(),
                "; dhp_compare reads files of --metrics, --trace-values and --flight-record");
    }
  }

 private:
  using Json = nlohmann::ordered_json;
  static constexpr const char* format = "dhp flight record 1";

  [[nodiscard]] static Call call_of(const dhp::FlightRecord& record) {
    const bool of_group = record.group != nullptr;
    Call call{.number = record.number,
              .key = record.key(),
              .operation = of_group ? name_of(record.call.kind) : "",
              .what = record.agreed(),
              .group = of_group ? record.group->name : "",
              .where = of_group ? dhp::to_text(record.call.where) : "",
              .bytes = record.call.bytes(),
              .start_s = record.start_s,
              .failed = record.failed};
    if (!record.under_way()) call.end_s = record.end_s;
    if (call.unfinished()) call.needs = record.needs();
    return call;
  }
  /// Calls field(name, value) for each field that every call has.
  static void each_field(auto& call, const auto& field) {
    field("number", call.number);
    field("key", call.key);
    field("operation", call.operation);
    field("what", call.what);
    field("group", call.group);
    field("where", call.where);
    field("bytes", call.bytes);
    field("start_s", call.start_s);
    field("failed", call.failed);
  }
  [[nodiscard]] static Json json_of(const Call& call) {
    Json json;
    each_field(call, [&](const char* name, const auto& value) { json[name] = value; });
    json["end_s"] = call.end_s ? Json(*call.end_s) : Json();
    json["needs"] = call.needs;
    return json;
  }
  // Names and places may contain any bytes.
  [[nodiscard]] static std::string line(const Json& value) {
    return value.dump(-1, ' ', false, Json::error_handler_t::replace);
  }

  template <class T>
  [[nodiscard]] static T field(const Json& object, const char* name) {
    return value_of<T>(object.at(name), name);
  }
  template <class T>
  [[nodiscard]] static T value_of(const Json& value, const char* name) {
    if constexpr (std::integral<T> && !std::same_as<T, bool>)
      dhp::check(value.is_number_integer(), "\"", name, "\" is no whole number");
    return value.get<T>();
  }
  [[nodiscard]] static int rank_of(const Json& value, const char* name, int world_size) {
    const auto rank = value_of<std::int64_t>(value, name);
    dhp::check(rank >= 0 && rank < world_size, "\"", name, "\" is no rank of ", world_size);
    return static_cast<int>(rank);
  }
  [[nodiscard]] static FlightRecordFile parsed(const Json& json) {
    dhp::check(field<std::string>(json, "format") == format, "its format is not \"", format, "\"");
    FlightRecordFile file;
    const auto size = field<std::int64_t>(json, "world_size");
    dhp::check(size >= 1 && size <= 1 << 24, "\"world_size\" is no number of ranks");
    file.world_size = static_cast<int>(size);
    file.rank = rank_of(json.at("rank"), "rank", file.world_size);
    file.name = field<std::string>(json, "name");
    file.written = field<std::string>(json, "written");
    file.now_s = field<double>(json, "now_s");
    file.calls = field<std::uint64_t>(json, "calls");
    for (const auto& item : json.at("entries")) {
      auto& call = file.entries.emplace_back();
      each_field(call, [&]<class T>(const char* name, T& value) { value = field<T>(item, name); });
      if (!item.at("end_s").is_null()) call.end_s = field<double>(item, "end_s");
      for (const auto& rank : item.at("needs"))
        call.needs.push_back(rank_of(rank, "needs", file.world_size));
    }
    return file;
  }
};

}  // namespace examples
