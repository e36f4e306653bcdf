#include <examples/report/trace_file.hpp>
#include <tests/comm/ranks.hpp>
#include <tests/support/folder.hpp>

namespace {

using namespace examples;
using nlohmann::json;

json read(const std::string& path) {
  std::ifstream file(path);
  return json::parse(file);
}

// Fills a rank's trace; the rank's number is in all times and sizes.
void fill(Trace& trace, int rank, int more = 0) {
  const double s = 1e-3 * rank;
  const int track = trace.add_track("group 1 of 3 ranks");
  trace.add({.kind = TraceKind::communication,
             .name = "all_reduce",
             .start = 0.001 + s,
             .end = 0.004 + s,
             .track = track,
             .bytes = 100 + rank,
             .where = std::source_location::current()});
  trace.add({.kind = TraceKind::communication,
             .name = "issued \"early\"",
             .start = 0.002 + s,
             .end = 0.005 + s,
             .track = track});
  trace.add({.kind = TraceKind::wait, .name = "all_reduce", .start = 0.003 + s, .end = 0.004 + s});
  trace.add({.kind = TraceKind::step,
             .name = concat("step of rank ", rank),
             .start = s,
             .end = 0.006 + s});
  for (int at = 0; at < more; ++at)
    trace.add(
        {.kind = TraceKind::work, .name = concat("work ", at), .start = 1.0 + at, .end = 1.5 + at});
}

bool is(const json& span, const std::string& name, int track, double start_us, double us) {
  return span.at("name") == name && span.at("tid") == track &&
         std::abs(span.at("ts").get<double>() - start_us) < 1e-6 &&
         std::abs(span.at("dur").get<double>() - us) < 1e-6;
}

TEST_CASE("trace_file: a trace has a process for each rank, its lanes, and one clock") {
  const Folder folder;
  const auto path = folder.path + "/trace.json";
  (void)on_ranks(3, [&](Comm<Cpu>& world, Cpu& dev) {
    Trace trace;
    fill(trace, world.rank());
    write_trace(dev, world, trace, path, concat("host", world.rank()), 1e-3 * world.rank());
    return 0;
  });
  const auto file = read(path);
  std::map<int, std::vector<json>> spans;
  std::map<std::pair<int, int>, std::string> lanes;
  std::map<int, std::string> processes;
  for (const auto& event : file.at("traceEvents"))
    if (event.at("ph") == "X") spans[event.at("pid").get<int>()].push_back(event);
    else if (event.at("name") == "process_name")
      processes[event.at("pid").get<int>()] = event.at("args").at("name").get<std::string>();
    else if (event.at("name") == "thread_name")
      lanes[{event.at("pid").get<int>(), event.at("tid").get<int>()}] =
          event.at("args").at("name").get<std::string>();
  CHECK(processes.size() == 3);
  CHECK(lanes.size() == 6);
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(processes[rank] == concat("rank ", rank, ", host", rank));
    CHECK(lanes[{rank, 0}] == "work");
    CHECK(lanes[{rank, 1}] == "communication, group 1 of 3 ranks");
    REQUIRE(spans[rank].size() == 4);
    const auto& [step, reduce, early, wait] =
        std::tie(spans[rank][0], spans[rank][1], spans[rank][2], spans[rank][3]);
    CHECK(is(step, concat("step of rank ", rank), 0, 0, 6000));
    CHECK(is(reduce, "all_reduce", 1, 1000, 3000));
    CHECK(is(early, "issued \"early\"", 1, 4000, 1000));  // after the previous call
    CHECK(is(wait, "waits for all_reduce", 0, 3000, 1000));
    CHECK(reduce.at("cat") == "communication");
    CHECK(reduce.at("args").at("bytes") == 100 + rank);
    CHECK(reduce.at("args").at("at").get<std::string>().starts_with("trace_file.cpp:"));
    CHECK(wait.at("cat") == "exposed");
  }
}

TEST_CASE("trace_file: long and empty traces are written") {
  const Folder folder;
  const auto path = folder.path + "/trace.json";
  (void)on_ranks(2, [&](Comm<Cpu>& world, Cpu& dev) {
    Trace trace;
    fill(trace, world.rank(), 20000);
    write_trace(dev, world, trace, path, "", 0);
    return 0;
  });
  CHECK(read(path).at("traceEvents").size() == 2 * (4 + 4 + 20000));
  Cpu dev;
  write_trace(dev, Comm<Cpu>(), Trace(), path, "", 0);
  CHECK(read(path).at("traceEvents").size() == 3);
}

TEST_CASE("trace_file: a path that cannot be written ends all ranks with a sentence") {
  CHECK_THROWS_WITH_AS(on_ranks(2,
                                [&](Comm<Cpu>& world, Cpu& dev) {
                                  write_trace(dev, world, Trace(), "/nowhere/at/all.json", "", 0);
                                  world.barrier();
                                  return 0;
                                }),
                       Contains("cannot open /nowhere/at/all.json"), Error);
}

TEST_CASE("trace_report: an existing file stays until the new trace is complete") {
  const Folder folder;
  const auto path = folder.path + "/trace.json";
  replace_file(path, "of another run");
  Cpu dev({.trace = std::make_shared<Trace>()});
  const TraceReport<Cpu> report(dev, Comm<Cpu>(), path);
  CHECK(text_of(path) == "of another run");
  CHECK(!detail::is_there(path + ".part"));
  CHECK(has(message_of([&] { (void)TraceReport<Cpu>(dev, Comm<Cpu>(), folder.path); }),
            "is not a file"));
}

TEST_CASE("clock_offset: each rank finds how far it is ahead of rank 0") {
  const auto start = std::chrono::steady_clock::now();
  for (const int ranks : {1, 2, 4}) {
    const auto found = on_ranks(ranks, [&](Comm<Cpu>& world, Cpu& dev) {
      return clock_offset(dev, world, [&] { return seconds_since(start) + 100.0 * world.rank(); });
    });
    for (int rank = 0; rank < ranks; ++rank) {
      const auto& of = found[static_cast<std::size_t>(rank)];
      CHECK(std::abs(of.ahead_s - 100.0 * rank) <= of.round_trip_s / 2 + 1e-9);
      CHECK(of.round_trip_s < hang_s);
    }
    CHECK(found[0].round_trip_s == 0);
  }
}

TEST_CASE("clock_offset: the shortest of several round trips counts") {
  const auto found = on_ranks(2, [&](Comm<Cpu>& world, Cpu& dev) {
    int asked = 0;
    return clock_offset(dev, world, [&] {
      if (world.rank() == 0) return 1000.0;
      // Rank 1 reads its clock before and after each trip. The third trip is the fastest.
      const double trips_s[] = {0, 9, 100, 107, 200, 201, 300, 308};
      return asked < 8 ? trips_s[asked++] : 400.0 + 10 * asked++;
    });
  });
  CHECK(found[1].round_trip_s == 1);
  CHECK(found[1].ahead_s == 200.5 - 1000);
}

}  // namespace
