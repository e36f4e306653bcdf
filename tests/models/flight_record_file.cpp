#include <dhp/comm/ledger_file.hpp>
#include <tests/comm/folder.hpp>
#include <tests/comm/ranks.hpp>

#include <doctest/doctest.h>

#include <fstream>
#include <sstream>

namespace {

using namespace tests;

LedgerEntry entry(const std::string& key, const std::string& operation, const std::string& what) {
  LedgerEntry made;
  made.key = key;
  made.operation = operation;
  made.what = what;
  made.bytes = 20;
  made.group = std::make_shared<const std::vector<int>>(std::vector<int>{0, 2, 3});
  made.where = CallSite::current();
  return made;
}
std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}
void put(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

TEST_CASE("ledger file: what is written is what is read") {
  const Folder folder;
  const auto path = folder.path + "/ledger.json";
  Ledger ledger;
  { const Ledger::Call done(ledger, entry("0@0#1", "all_reduce", "all_reduce of 5 f32 (sum)")); }
  try {
    const Ledger::Call broken(ledger, entry("2@0:3>0#7", "recv", "message of 5 f32"));
    fail("no");
  } catch (const Error&) {}
  Ledger::Call open(ledger, entry("0@0#2", "barrier", "barrier"));
  open.waits_for(2);
  auto stranger = entry("store:\"\xff\n#3", "waiting", "waiting");
  stranger.group = nullptr;
  const Ledger::Call odd(ledger, stranger);
  sleep_ms(2);
  LedgerFile::of(ledger, 3, 4, "host node7, process 4711").write(path);

  const auto read = LedgerFile::read(path);
  CHECK(read.rank == 3);
  CHECK(read.world_size == 4);
  CHECK(read.name == "host node7, process 4711");
  CHECK(read.calls == 4);
  CHECK(read.now_s >= 0.002);
  CHECK(read.now_s < 100);
  CHECK(read.opened.size() == std::string("2026-03-01T12:00:00.250Z").size());
  CHECK(read.opened < read.written);
  REQUIRE(read.entries.size() == 4);
  const auto& [first, second, third, fourth] =
      std::tie(read.entries[0], read.entries[1], read.entries[2], read.entries[3]);
  CHECK(first.number == 1);
  CHECK(first.key == "0@0#1");
  CHECK(first.operation == "all_reduce");
  CHECK(first.what == "all_reduce of 5 f32 (sum)");
  CHECK(first.bytes == 20);
  CHECK(contains(first.where, "ledger_file.cpp:"));
  REQUIRE(first.end_s.has_value());
  CHECK(*first.end_s == ledger.ended()[0].end_s);
  CHECK(first.start_s == ledger.ended()[0].start_s);
  CHECK(!first.failed);
  CHECK(second.failed);
  CHECK(second.end_s.has_value());
  CHECK(second.group == "2@0");
  CHECK(third.number == 3);
  CHECK(!third.end_s.has_value());
  CHECK(third.waits_for == std::vector<int>{2});
  CHECK(fourth.group == "store");
  CHECK(read.groups.size() == 2);
  CHECK(read.groups.at("2@0") == std::vector<int>{0, 2, 3});
  CHECK(folder.files().size() == 1);  // nothing is left beside it
}

TEST_CASE("ledger file: an empty ledger, and the moment in UTC") {
  const Folder folder;
  LedgerFile::of(Ledger(), 0, 1, "").write(folder.path + "/a");
  CHECK(LedgerFile::read(folder.path + "/a").entries.empty());
  const std::chrono::system_clock::time_point moment(std::chrono::milliseconds(1772366400250));
  CHECK(utc_text(moment) == "2026-03-01T12:00:00.250Z");
}

TEST_CASE("ledger file: each rank has a path of its own") {
  CHECK(ledger_path("ledger.json", 3) == "ledger.rank3.json");
  CHECK(ledger_path("/run.d/a.b.json", 12) == "/run.d/a.b.rank12.json");
  CHECK(ledger_path("run.d/ledger", 0) == "run.d/ledger.rank0");
}

TEST_CASE("ledger file: what cannot be written or read is said in one sentence") {
  const Folder folder;
  const auto path = folder.path + "/x.json";
  const auto said = [&](const std::string& text) {
    put(path, text);
    const auto message = message_of([&] { (void)LedgerFile::read(path); });
    CHECK(message.starts_with(path + " is no ledger: "));
    return message.substr(std::min(message.size(), path.size() + 15));
  };
  CHECK(contains(message_of([&] { LedgerFile().write(folder.path + "/no/x"); }), "cannot open"));
  CHECK(contains(message_of([&] { (void)LedgerFile::read(folder.path + "/y"); }),
                 "cannot open " + folder.path + "/y: No such file"));
  CHECK(contains(message_of([&] { (void)LedgerFile::read(folder.path); }), "is not a file"));
  CHECK(said("") == "it is no JSON");
  CHECK(said("{\"rank\": 1") == "it is no JSON");
  CHECK(said("[]") == "it is no JSON object");
  CHECK(said("{}") == "it has no \"format\"");
  CHECK(said("{\"format\": \"else\"}") == "its format is not \"dhp ledger 1\"");

  LedgerFile file;
  file.world_size = 4;
  file.groups["0@0"] = {0, 3};
  file.entries.emplace_back().number = 1;
  file.entries.back().waits_for = {3};
  file.write(path);
  const auto good = text_of(path);
  const auto with = [&](const std::string& old, const std::string& other) {
    auto text = good;
    const auto at = text.find(old);
    REQUIRE(at != text.npos);
    return said(text.replace(at, old.size(), other));
  };
  CHECK(with("\"rank\": 0", "\"rank\": 4") == "it has no whole number from 0 to 3 as \"rank\"");
  CHECK(with("\"world_size\": 4", "\"world_size\": 1e3") ==
        "it has no whole number from 1 to 16777216 as \"world_size\"");
  CHECK(with("\"calls\": 0", "\"calls\": 18446744073709551615").starts_with("it has no whole"));
  CHECK(with("\"name\": \"\"", "\"name\": 3") == "it has no text as \"name\"");
  CHECK(with("[0,3]", "[0,4]") == "it has something else than ranks below 4 in \"groups\"");
  CHECK(with("\"start_s\":0.0", "\"start_s\":true") == "entry 1 has no number as \"start_s\"");
  CHECK(with("\"failed\":false", "\"failed\":0") ==
        "entry 1 has neither true nor false as \"failed\"");
  CHECK(with("\"waits_for\":[3]", "\"waits_for\":3") ==
        "entry 1 has no list of ranks as \"waits_for\"");
}

TEST_CASE("ledger file: damaged ones are harmless") {
  const Folder folder;
  const auto path = folder.path + "/x.json";
  Ledger ledger;
  Ledger::Call open(ledger, entry("0@0#2", "barrier", "barrier"));
  open.waits_for(2);
  LedgerFile::of(ledger, 3, 4, "host node7").write(path);
  const auto good = text_of(path);
  RandomStream dice{.seed = 5};
  for (std::uint64_t round = 0; round < 2000; ++round) {
    auto text = good;
    text[static_cast<std::size_t>(dice.below(static_cast<std::uint32_t>(text.size()), 2 * round))] =
        static_cast<char>(dice.below(256, 2 * round + 1));
    put(path, text);
    (void)message_of([&] { (void)LedgerFile::read(path); });
  }
  put(path, good.substr(0, good.size() / 2));
  CHECK(contains(message_of([&] { (void)LedgerFile::read(path); }), "it is no JSON"));
}

}  // namespace
