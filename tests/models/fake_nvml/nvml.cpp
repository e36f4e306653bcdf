// A library with NVML's functions. Its only GPU uses 1.5 J between two calls.
#include <cstring>

extern "C" {
int nvmlInit_v2() { return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* id, const char** gpu) {
  *gpu = id;
  return std::strcmp(id, "0000:3B:00.0") == 0 ? 0 : 6;  // NVML_ERROR_NOT_FOUND
}
int nvmlDeviceGetTotalEnergyConsumption(const char*, unsigned long long* millijoules) {
  static unsigned long long total = 7'000'000;
  *millijoules = total += 1500;
  return 0;
}
}
