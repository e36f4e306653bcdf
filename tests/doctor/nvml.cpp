#include <examples/doctor/nvml.hpp>

#include <doctest/doctest.h>

#include <cstdlib>

using namespace examples::doctor;

namespace {

std::optional<Nvml> opened(const char* gpus, std::string& why) {
  ::setenv("FAKE_NVML", gpus, 1);
  return Nvml::open(FAKE_NVML, why);
}

}  // namespace

TEST_CASE("nvml: good GPUs") {
  std::string why;
  const auto nvml = opened("good", why);
  REQUIRE_MESSAGE(nvml.has_value(), why);
  CHECK(nvml->driver_version() == "580.65.06");
  CHECK(nvml->gpus() == 2);
  const auto gpu = nvml->read(1);
  REQUIRE(gpu.has_value());
  CHECK(gpu->name == "NVIDIA Test");
  CHECK(gpu->bus == "00000000:3B:00.0");
  CHECK(gpu->temperature_c == 41);
  CHECK(gpu->clock_mhz == 1980);
  CHECK(gpu->slowdown_reasons == 0);
  CHECK(gpu->ecc_uncorrected == 0);
  CHECK(gpu->remapping_failed == false);
  CHECK(gpu->pcie_width == 16);
  CHECK_FALSE(gpu->retired_pages.has_value());
  CHECK_FALSE(nvml->read(2).has_value());
}

TEST_CASE("nvml: a sick GPU, by its place on the bus") {
  std::string why;
  const auto nvml = opened("sick", why);
  REQUIRE(nvml.has_value());
  const auto gpu = nvml->read("00000000:3B:00.0");
  REQUIRE(gpu.has_value());
  CHECK(gpu->temperature_c == 97);
  CHECK(gpu->ecc_corrected == 0);
  CHECK(gpu->ecc_uncorrected == 2);
  CHECK(gpu->remapped_rows == 9);
  CHECK(gpu->remapping_pending == true);
  CHECK(gpu->remapping_failed == true);
  CHECK(gpu->slowdown_reasons == (hardware_slowdown | hardware_thermal_slowdown));
  CHECK(gpu->pcie_generation == 1);
  CHECK(gpu->most_pcie_generation == 5);
  CHECK_FALSE(nvml->read("00000000:99:00.0").has_value());
}

TEST_CASE("nvml: what an old GPU does not know is not known") {
  std::string why;
  const auto gpu = opened("old", why)->read(0);
  REQUIRE(gpu.has_value());
  CHECK_FALSE(gpu->ecc_uncorrected.has_value());
  CHECK_FALSE(gpu->remapped_rows.has_value());
  CHECK(gpu->retired_pages == 12);
  CHECK(gpu->retirement_pending == false);
}

TEST_CASE("nvml: no library, no driver, another library") {
  std::string why;
  CHECK_FALSE(Nvml::open("no_such_library.so", why).has_value());
  CHECK(why == "there is no no_such_library.so");
  CHECK_FALSE(opened("none", why).has_value());
  CHECK(why == "NVML cannot start: Driver Not Loaded (9)");
  CHECK_FALSE(Nvml::open("libc.so.6", why).has_value());
  CHECK(why == "libc.so.6 is no library of NVML");
}
