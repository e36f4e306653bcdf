#include <examples/report/energy_meter.hpp>
#include <tests/support/test.hpp>

using examples::EnergyMeter;

TEST_CASE("energy meter: there is none without a GPU, without NVML, or for an unknown GPU") {
  CHECK_FALSE(EnergyMeter("").joules());
  CHECK_FALSE(EnergyMeter("0000:3B:00.0", "libnot-there.so").joules());
  CHECK_FALSE(EnergyMeter("0000:3B:00.0", "libm.so.6").joules());
}

TEST_CASE("energy meter: gives NVML's energy since it was made") {
  const std::string fake = DHP_FAKE_NVML;
  const EnergyMeter meter("0000:3B:00.0", fake);
  CHECK(meter.joules().value_or(0) == Approx(1.5));
  CHECK(meter.joules().value_or(0) == Approx(3));
  CHECK_FALSE(EnergyMeter("0000:AF:00.0", fake).joules());
}
