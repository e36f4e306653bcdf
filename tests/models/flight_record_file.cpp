#include <examples/report/flight_record_file.hpp>
#include <tests/comm/ranks.hpp>
#include <tests/support/folder.hpp>

namespace {

using examples::FlightRecordFile;

// The calls of rank 3 of 4: a sum, a failed message, a pending barrier, and an entry without a group.
struct Calls {
  std::shared_ptr<FlightRecorder> recorder = std::make_shared<FlightRecorder>();
  dhp::detail::GroupRecorder world{recorder, 3, 4}, part = world.of_part({3, 0});
  std::vector<FlightRecorder::Open> under_way{};
  Calls() {
    { const auto ended = world.begin({.kind = CallKind::all_reduce, .count = 5}); }
    try {
      const auto broken = part.begin({.kind = CallKind::recv, .count = 5, .other = 1});
      fail("no");
    } catch (const Error&) {}
    under_way.push_back(world.begin({.kind = CallKind::barrier, .where = CallSite::current()}));
    under_way.emplace_back(*recorder, FlightRecord{.text = "waiting for \"\xff\n\""});
    sleep_ms(2);
  }
  [[nodiscard]] FlightRecordFile file() const {
    return FlightRecordFile::of(*recorder, 3, 4, "host node7, process 4711");
  }
};

TEST_CASE("flight record file: a written file is read back") {
  const Folder folder;
  const auto path = folder.path + "/flight.json";
  const Calls calls;
  calls.file().write(path);
  const auto read = FlightRecordFile::read(path);
  CHECK(read.rank == 3);
  CHECK(read.world_size == 4);
  CHECK(read.name == "host node7, process 4711");
  CHECK(read.calls == 4);
  CHECK(read.now_s >= 0.002);
  CHECK(read.now_s < 100);
  CHECK(read.written.size() == std::string("2026-03-01T12:00:00.250Z").size());
  REQUIRE(read.entries.size() == 4);
  const auto& [sum, message, barrier, other] =
      std::tie(read.entries[0], read.entries[1], read.entries[2], read.entries[3]);
  CHECK(sum.key == "world#1");
  CHECK(sum.operation == "all_reduce");
  CHECK(sum.what == "all_reduce of 5 f32 (sum)");
  CHECK(sum.bytes == 20);
  CHECK(!sum.unfinished());
  CHECK(sum.needs.empty());
  const auto ended = calls.recorder->contents().ended;
  CHECK(sum.start_s == ended[0].start_s);
  CHECK(*sum.end_s == ended[0].end_s);
  CHECK(message.key == "world.1@3:0>3#1");
  CHECK(message.failed);
  CHECK(message.end_s.has_value());
  CHECK(message.needs == std::vector<int>{0});
  CHECK(!barrier.end_s.has_value());
  CHECK(barrier.needs == std::vector<int>{0, 1, 2});
  CHECK(has(barrier.where, "flight_record_file.cpp:"));
  CHECK(other.group == "");
  CHECK(folder.files().size() == 1);  // no other file is left
}

TEST_CASE("flight record file: times are in UTC, and each rank has its own path") {
  const std::chrono::system_clock::time_point moment(std::chrono::milliseconds(1772366400250));
  CHECK(examples::utc_text(moment) == "2026-03-01T12:00:00.250Z");
  using examples::flight_record_path;
  CHECK(flight_record_path("flight.json", 3) == "flight.rank3.json");
  CHECK(flight_record_path("/run.d/a.b.json", 12) == "/run.d/a.b.rank12.json");
  CHECK(flight_record_path("run.d/flight", 0) == "run.d/flight.rank0");
}

TEST_CASE("flight record file: an error of writing or reading is one sentence") {
  const Folder folder;
  const auto path = folder.path + "/x.json";
  const auto error_for = [&](const std::string& text) {
    replace_file(path, text);
    const auto message = message_of([&] { (void)FlightRecordFile::read(path); });
    CHECK(message.starts_with(path + " is no flight record: "));
    return message;
  };
  CHECK(has(message_of([&] { FlightRecordFile().write(folder.path + "/no/x"); }), "cannot open"));
  CHECK(has(message_of([&] { (void)FlightRecordFile::read(folder.path + "/y"); }),
            "cannot open " + folder.path + "/y: No such file"));
  CHECK(has(message_of([&] { (void)FlightRecordFile::read(folder.path); }), "not a file"));
  CHECK(has(error_for(""), "parse"));
  CHECK(has(error_for("{\"rank\": 1"), "parse"));
  (void)error_for("[]");
  CHECK(has(error_for("{}"), "format"));
  CHECK(has(error_for("{\"format\": \"else\"}"), "its format is not \"dhp flight record 1\""));

  const Calls calls;
  calls.file().write(path);
  const auto good = text_of(path);
  const auto with = [&](const std::string& old, const std::string& other) {
    auto text = good;
    const auto at = text.find(old);
    REQUIRE(at != text.npos);
    return error_for(text.replace(at, old.size(), other));
  };
  CHECK(has(with("\"rank\": 3", "\"rank\": 4"), "\"rank\" is no rank of 4"));
  CHECK(has(with("\"world_size\": 4", "\"world_size\": 1e3"), "is no whole number"));
  CHECK(has(with("\"world_size\": 4", "\"world_size\": 0"), "is no number of ranks"));
  CHECK(has(with("[0,1,2]", "[0,1,4]"), "\"needs\" is no rank of 4"));
  CHECK(has(with("\"name\": \"host", "\"names\": \"host"), "name"));
  (void)with("\"failed\":false", "\"failed\":0");
}

TEST_CASE("flight record file: damaged files do not crash the reader") {
  const Folder folder;
  const auto path = folder.path + "/x.json";
  Calls().file().write(path);
  const auto good = text_of(path);
  RandomStream dice{.seed = 5};
  for (std::uint64_t round = 0; round < 1000; ++round) {
    auto text = good;
    text[static_cast<std::size_t>(dice.below(static_cast<std::uint32_t>(text.size()), 2 * round))] =
        static_cast<char>(dice.below(256, 2 * round + 1));
    replace_file(path, text);
    (void)message_of([&] { (void)FlightRecordFile::read(path); });
  }
  replace_file(path, good.substr(0, good.size() / 2));
  CHECK(has(message_of([&] { (void)FlightRecordFile::read(path); }), "no flight record"));
}

}  // namespace
