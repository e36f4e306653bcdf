#include <dhp/cpu.hpp>
#include <examples/doctor/calibrate.hpp>
#include <tests/support/test.hpp>

TEST_CASE("calibrate: a cluster whose hosts have unlike numbers of ranks has whole hosts") {
  run_ranks<Cpu>(3, [](Comm<Cpu> world) {
    Cpu dev;
    examples::doctor::DoctorOptions options;
    options.run.layout = {.data = 3};
    examples::doctor::Examination<Cpu> exam{
        dev, std::move(world), options, {"a", "a", "b"}, {"x", "x", "x"}};
    const auto cluster = calibrated(exam);
    CHECK(cluster.devices == 2);
    CHECK(cluster.name == "2 ranks a host, x");
  });
}
