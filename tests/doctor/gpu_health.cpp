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

bool tells(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
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
  CHECK(tells(problem([](auto& gpu) { gpu.temperature_c = 90; }),
              "warning here: 90 degrees Celsius"));
  CHECK(tells(problem([](auto& gpu) { gpu.ecc_uncorrected = 1; }), "failed here: 1 ECC"));
  CHECK(tells(problem([](auto& gpu) { gpu.ecc_corrected = 2000; }), "warning here: 2000"));
  CHECK(tells(problem([](auto& gpu) { gpu.remapped_rows = 9; }), "warning here: 9 rows"));
  CHECK(tells(problem([](auto& gpu) { gpu.retired_pages = 61; }), "failed here: 61 pages"));
  CHECK(tells(problem([](auto& gpu) { gpu.remapping_failed = true; }), "failed here: a row"));
  CHECK(tells(problem([](auto& gpu) { gpu.remapping_pending = true; }), "warning here: bad"));
  CHECK(tells(problem([](auto& gpu) { gpu.pcie_width = 8; }), "8 lanes of 16"));
  CHECK(tells(problem([](auto& gpu) { gpu.slowdown_reasons = 0x80; }), "power brake"));
  CHECK(tells(problem([](auto& gpu) { gpu.slowdown_reasons = 0x48; }), "because it is hot"));
  CHECK(tells(problem([](auto& gpu) { gpu.slowdown_reasons = 0x8; }), "by its hardware"));
}

TEST_CASE("gpu_health: clocks and the PCIe link are judged under load only") {
  const auto slow = [](auto& gpu) { gpu.clock_mhz = 345; };
  const auto lower = [](auto& gpu) { gpu.pcie_generation = 1; };
  CHECK(tells(problem(slow), "failed here: its clock is 345 MHz of 1980 MHz"));
  CHECK(problem(slow, false) == "");
  CHECK(tells(problem(lower), "generation 1 of 5"));
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
