#include <examples/doctor/gpu_health.hpp>

#include <doctest/doctest.h>

using namespace examples::doctor;

namespace {

GpuReading healthy() {
  GpuReading gpu;
  gpu.bus = "00000000:18:00.0";
  gpu.temperature_c = 50;
  gpu.clock_mhz = gpu.most_clock_mhz = 1980;
  gpu.slowdown_reasons = 0x1;  // it has nothing to do
  gpu.ecc_corrected = gpu.ecc_uncorrected = 0;
  gpu.remapped_rows = 0;
  gpu.remapping_pending = gpu.remapping_failed = false;
  gpu.pcie_generation = gpu.most_pcie_generation = 5;
  gpu.pcie_width = gpu.most_pcie_width = 16;
  return gpu;
}

// The only problem of a healthy GPU that something was changed of; "" if there is none.
template <class Change>
std::string problem(Change change, bool under_load = true) {
  auto gpu = healthy();
  change(gpu);
  const auto found = judge_gpu(gpu, Limits{}, under_load, "here");
  if (found.empty()) return "";
  REQUIRE(found.size() == 1);
  return dhp::concat(name_of(found.front().verdict), " ", found.front().sentence);
}

}  // namespace

TEST_CASE("gpu_health: a healthy GPU, and one of which nothing is known") {
  CHECK(problem([](auto&) {}) == "");
  CHECK(judge_gpu({}, Limits{}, true, "here").empty());
  CHECK(unknown_of(healthy()) == "");
  CHECK(unknown_of({}) ==
        "temperature, clocks, reasons of a slowdown, ECC errors, rows or pages out of use, PCIe "
        "link");
}

TEST_CASE("gpu_health: each sign of sickness") {
  using doctest::Contains;
  CHECK(problem([](auto& gpu) { gpu.temperature_c = 90; }) ==
        Contains("warning here: 90 degrees Celsius"));
  CHECK(problem([](auto& gpu) { gpu.ecc_uncorrected = 1; }) == Contains("failed here: 1 ECC"));
  CHECK(problem([](auto& gpu) { gpu.ecc_corrected = 2000; }) == Contains("warning here: 2000"));
  CHECK(problem([](auto& gpu) { gpu.remapped_rows = 9; }) == Contains("warning here: 9 rows"));
  CHECK(problem([](auto& gpu) { gpu.retired_pages = 61; }) == Contains("failed here: 61 pages"));
  CHECK(problem([](auto& gpu) { gpu.remapping_failed = true; }) == Contains("failed here: a row"));
  CHECK(problem([](auto& gpu) { gpu.remapping_pending = true; }) == Contains("warning here: bad"));
  CHECK(problem([](auto& gpu) { gpu.pcie_width = 8; }) == Contains("8 lanes of 16"));
  CHECK(problem([](auto& gpu) { gpu.slowdown_reasons = 0x80; }) == Contains("power brake"));
  CHECK(problem([](auto& gpu) { gpu.slowdown_reasons = 0x48; }) == Contains("because it is hot"));
  CHECK(problem([](auto& gpu) { gpu.slowdown_reasons = 0x8; }) == Contains("by its hardware"));
}

TEST_CASE("gpu_health: clocks and the PCIe link are judged under load only") {
  const auto slow = [](auto& gpu) { gpu.clock_mhz = 345; };
  const auto lower = [](auto& gpu) { gpu.pcie_generation = 1; };
  CHECK(problem(slow) == doctest::Contains("failed here: its clock is 345 MHz of 1980 MHz"));
  CHECK(problem(slow, false) == "");
  CHECK(problem(lower) == doctest::Contains("generation 1 of 5"));
  CHECK(problem(lower, false) == "");
}

TEST_CASE("gpu_health: Xids of this GPU") {
  const char* const log =
      "NVRM: Xid (PCI:0000:18:00): 79, gone\nNVRM: Xid (PCI:0000:3b:00): 48, x\n"
      "NVRM: Xid (PCI:0000:18:00): 31, a program's mistake\n";
  const auto found = judge_xids(log, "00000000:18:00.0", "here");
  REQUIRE(found.size() == 1);
  CHECK(found[0].verdict == Verdict::failed);
  CHECK(found[0].sentence.starts_with("here: Xid 79 since the host was started"));
}
