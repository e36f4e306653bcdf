#include <examples/report/transport_report.hpp>
#include <tests/comm/ranks.hpp>

using namespace examples;

TEST_CASE("transport report: every axis of more than one rank is measured, equally on all ranks") {
  const auto reports = on_ranks(4, [](Comm<Cpu>& world, Cpu& dev) {
    Mesh<Cpu> mesh(world, {.data = 2, .tensor = 2});
    // Ranks 0 and 1 are on one host, ranks 2 and 3 on another, so the data axis crosses hosts. Ranks differ in memory,
    // like pipeline stages with different numbers of weights.
    const auto bytes = (1 << 20) + 64 * world.rank();
    return measure_transports(dev, mesh, world.rank() < 2 ? "node1" : "node2", bytes);
  });
  for (const auto& report : reports) {
    CHECK(report.hosts == std::vector<std::string>{"node1", "node1", "node2", "node2"});
    REQUIRE(report.axes.size() == 2);
    CHECK(report.axes[0].axis == "tensor");
    CHECK(report.axes[0].one_host);
    CHECK(report.axes[0].transport == "threads of one process");
    CHECK(report.axes[1].axis == "data");
    CHECK(!report.axes[1].one_host);
    CHECK(report.axes[1].ranks == 2);
    CHECK(report.axes[1].bytes == 1 << 20);
    CHECK(report.axes[0].bandwidth_bytes_per_s > 1e6);
    CHECK(report.axes[0].latency_s > 0);
    CHECK(report.axes[0].bandwidth_bytes_per_s == reports[0].axes[0].bandwidth_bytes_per_s);
  }
}

TEST_CASE("transport report: has readable lines, and refuses a bandwidth below the limit") {
  TransportReport report;
  report.hosts = {"a", "a", "a", "b", "a", "b"};
  report.axes = {{.axis = "tensor",
                  .ranks = 2,
                  .transport = "Gloo",
                  .one_host = false,
                  .bandwidth_bytes_per_s = 1.2345e9,
                  .latency_s = 45.678e-6,
                  .bytes = 8 << 20}};
  const auto lines = report.lines();
  REQUIRE(lines.size() == 4);
  CHECK(lines[0] == "host a: ranks 0-2,4");
  CHECK(lines[1] == "host b: ranks 3,5");
  CHECK(lines[2] ==
        "tensor axis: 2 ranks, Gloo, across hosts; 1.234 GB/s at 8 MiB, 45.68 us for the smallest");
  CHECK(has(lines[3], "warning: the tensor axis, which talks most, crosses hosts"));
  report.check_bandwidth(1.2e9);
  CHECK(
      has(message_of([&] { report.check_bandwidth(1.3e9); }),
          "the tensor axis has 1.234 GB/s over Gloo, less than the 1.3 GB/s that were asked for"));
}
