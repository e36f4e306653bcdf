// LedgerFile: what a rank's ledger says at one moment, as a file for people and for dhp_ledger, which compares those of
// several ranks. Needs nlohmann/json.
//
// The reader trusts nothing: what is missing, of another type or out of its range is named, with the file.
#pragma once

#include <dhp/comm/ledger.hpp>
#include <dhp/core/open_file.hpp>

#include <nlohmann/json.hpp>

#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace dhp {

/// "2026-03-01T12:00:00.250Z"
[[nodiscard]] inline std::string utc_text(std::chrono::system_clock::time_point when) {
  const auto ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(when.time_since_epoch()).count();
  const auto seconds = static_cast<std::time_t>(ms / 1000);
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  char text[64], whole[80];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
  std::snprintf(whole, sizeof whole, "%s.%03dZ", text, static_cast<int>(ms % 1000));
  return whole;
}

/// Where a rank's part of FILE goes: "run/ledger.json" is "run/ledger.rank3.json" of rank 3.
[[nodiscard]] inline std::string ledger_path(const std::string& file, int rank) {
  const std::filesystem::path path(file);
  auto name = path.stem().string() + concat(".rank", rank) + path.extension().string();
  return (path.parent_path() / name).string();
}

struct LedgerFile {
  struct Call {
    std::uint64_t number = 0;
    std::string key{};  ///< this and what follows as LedgerEntry's
    std::string operation{};
    std::string what{};
    std::string group{};  ///< "0@0": what the key begins with
    std::string where{};  ///< "trainer.hpp:120"
    std::int64_t bytes = 0;
    double start_s = 0;
    std::optional<double> end_s{};  ///< none: under way
    bool failed = false;
    std::vector<int> waits_for{};
  };

  int rank = 0;
  int world_size = 1;
  std::string name{};                                ///< where it runs: "host node7, process 4711"
  std::string written{};                             ///< when, in UTC
  std::string opened{};                              ///< when seconds were 0
  double now_s = 0;                                  ///< when it was written, in these seconds
  std::uint64_t calls = 0;                           ///< so far; the older ones are forgotten
  std::vector<Call> entries;                         ///< by their numbers
  std::map<std::string, std::vector<int>> groups{};  ///< their ranks of the world, where known

  /// What the ledger says now.
  [[nodiscard]] static LedgerFile of(const Ledger& ledger, int rank, int world_size,
                                     std::string name) {
    LedgerFile file;
    file.rank = rank;
    file.world_size = world_size;
    file.name = std::move(name);
    file.opened = utc_text(ledger.opened());
    // What ends between these two lines is in both, and has ended.
    std::map<std::uint64_t, LedgerEntry> entries;
    for (auto& entry : ledger.under_way()) entries[entry.number] = std::move(entry);
    for (auto& entry : ledger.ended()) entries[entry.number] = std::move(entry);
    file.calls = ledger.calls();
    file.now_s = ledger.now_s();
    file.written = utc_text(std::chrono::system_clock::now());
    for (auto& [number, entry] : entries) file.add(std::move(entry));
    return file;
  }

  /// Replaces the file whole.
  void write(const std::string& path) const {
    replace_file(path, [&](OpenFile& file) { file.write(json()); });
  }
  [[nodiscard]] static LedgerFile read(const std::string& path);

 private:
  static constexpr const char* format = "dhp ledger 1";

  void add(LedgerEntry entry) {
    Call call;
    call.number = entry.number;
    call.group = entry.key.substr(0, entry.key.find_first_of("#:"));
    if (entry.group) groups[call.group] = *entry.group;
    call.key = std::move(entry.key);
    call.operation = std::move(entry.operation);
    call.what = std::move(entry.what);
    call.where = dhp::to_text(entry.where);
    call.bytes = entry.bytes;
    call.start_s = entry.start_s;
    if (!entry.under_way()) call.end_s = entry.end_s;
    call.failed = entry.failed;
    call.waits_for = std::move(entry.waits_for);
    entries.push_back(std::move(call));
  }
  // A line for each field, and for each call.
  [[nodiscard]] std::string json() const {
    const nlohmann::ordered_json fields{
        {"format", format}, {"rank", rank},       {"world_size", world_size},
        {"name", name},     {"written", written}, {"opened", opened},
        {"now_s", now_s},   {"calls", calls},     {"groups", groups}};
    std::string text = "{\n";
    for (const auto& [key, value] : fields.items())
      text += concat(" \"", key, "\": ", line(value), ",\n");
    text += " \"entries\": [";
    for (const auto& call : entries) {
      nlohmann::ordered_json entry{{"number", call.number},       {"key", call.key},
                                   {"operation", call.operation}, {"what", call.what},
                                   {"group", call.group},         {"where", call.where},
                                   {"bytes", call.bytes},         {"start_s", call.start_s}};
      entry["end_s"] = call.end_s ? nlohmann::ordered_json(*call.end_s) : nullptr;
      entry["failed"] = call.failed;
      entry["waits_for"] = call.waits_for;
      text += concat(&call == &entries.front() ? "\n  " : ",\n  ", line(entry));
    }
    return text + "\n ]\n}\n";
  }
  // Names and places may hold any bytes.
  [[nodiscard]] static std::string line(const nlohmann::ordered_json& value) {
    return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  }
};

namespace detail {

/// An object of a file that may be anything.
class LedgerObject {
 public:
  /// place: "call 3", for messages; empty: the whole.
  LedgerObject(const std::string& path, std::string place, const nlohmann::json& json)
      : path_(&path), place_(std::move(place)), json_(&json) {
    check(json.is_object(), path, " is no ledger: ", place_.empty() ? "it" : place_,
          " is no JSON object");
  }
  [[nodiscard]] const nlohmann::json& at(const char* name) const {
    const auto found = json_->find(name);
    if (found == json_->end()) wrong("no", name);
    return *found;
  }
  [[nodiscard]] std::string text(const char* name) const {
    const auto& value = at(name);
    if (!value.is_string()) wrong("no text as", name);
    return value.get<std::string>();
  }
  [[nodiscard]] double seconds(const char* name) const {
    const auto& value = at(name);
    if (!value.is_number()) wrong("no number as", name);
    return value.get<double>();
  }
  [[nodiscard]] bool flag(const char* name) const {
    const auto& value = at(name);
    if (!value.is_boolean()) wrong("neither true nor false as", name);
    return value.get<bool>();
  }
  [[nodiscard]] std::int64_t whole(const char* name, std::int64_t least, std::int64_t most) const {
    const auto& value = at(name);
    // What is beyond a signed number is negative here.
    if (!value.is_number_integer() || value.get<std::int64_t>() < least ||
        value.get<std::int64_t>() > most)
      wrong(concat("no whole number from ", least, " to ", most, " as"), name);
    return value.get<std::int64_t>();
  }
  /// Of a world of so many.
  [[nodiscard]] std::vector<int> ranks(const char* name, const nlohmann::json& list,
                                       int world_size) const {
    std::vector<int> ranks;
    if (!list.is_array()) wrong("no list of ranks as", name);
    for (const auto& rank : list) {
      if (!rank.is_number_integer() || rank.get<std::int64_t>() < 0 ||
          rank.get<std::int64_t>() >= world_size)
        wrong(concat("something else than ranks below ", world_size, " in"), name);
      ranks.push_back(rank.get<int>());
    }
    return ranks;
  }

 private:
  [[noreturn]] void wrong(const std::string& what, const char* name) const {
    fail("", *path_, " is no ledger: ", place_.empty() ? "it" : place_, " has ", what, " \"", name,
         "\"");
  }
  const std::string* path_;
  std::string place_;
  const nlohmann::json* json_;
};

}  // namespace detail

/// Throws Error with the path and what is wrong.
inline LedgerFile LedgerFile::read(const std::string& path) {
  constexpr std::uint64_t most_bytes = std::uint64_t{1} << 28;
  constexpr auto most = std::numeric_limits<std::int64_t>::max();
  const OpenFile stored(path, O_RDONLY);
  const auto size = stored.size();
  check(size <= most_bytes, path, " is no ledger: it has ", size, " bytes");
  std::string text(static_cast<std::size_t>(size), '\0');
  stored.read(0, std::as_writable_bytes(std::span(text.data(), text.size())));
  const auto json = nlohmann::json::parse(text, nullptr, false);
  check(!json.is_discarded(), path, " is no ledger: it is no JSON");
  const detail::LedgerObject whole(path, "", json);
  check(whole.text("format") == format, path, " is no ledger: its format is not \"", format, "\"");
  LedgerFile file;
  file.world_size = static_cast<int>(whole.whole("world_size", 1, 1 << 24));
  file.rank = static_cast<int>(whole.whole("rank", 0, file.world_size - 1));
  file.name = whole.text("name");
  file.written = whole.text("written");
  file.opened = whole.text("opened");
  file.now_s = whole.seconds("now_s");
  file.calls = static_cast<std::uint64_t>(whole.whole("calls", 0, most));
  const auto& groups = whole.at("groups");
  check(groups.is_object(), path, " is no ledger: its \"groups\" are no JSON object");
  for (const auto& [name, ranks] : groups.items())
    file.groups[name] = whole.ranks("groups", ranks, file.world_size);
  const auto& entries = whole.at("entries");
  check(entries.is_array(), path, " is no ledger: its \"entries\" are no list");
  for (const auto& item : entries) {
    const detail::LedgerObject entry(path, concat("entry ", file.entries.size() + 1), item);
    Call call;
    call.number = static_cast<std::uint64_t>(entry.whole("number", 1, most));
    call.key = entry.text("key");
    call.operation = entry.text("operation");
    call.what = entry.text("what");
    call.group = entry.text("group");
    call.where = entry.text("where");
    call.bytes = entry.whole("bytes", 0, most);
    call.start_s = entry.seconds("start_s");
    if (!entry.at("end_s").is_null()) call.end_s = entry.seconds("end_s");
    call.failed = entry.flag("failed");
    call.waits_for = entry.ranks("waits_for", entry.at("waits_for"), file.world_size);
    file.entries.push_back(std::move(call));
  }
  return file;
}

}  // namespace dhp
