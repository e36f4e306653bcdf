// What dhp_doctor asks of NVML, answered for two GPUs. The variable FAKE_NVML says which: "good" ones, one of which is
// "sick", "old" ones that know little, or "none", where the driver does not answer.
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

struct Gpu {
  const char* bus;
  bool sick;
};
Gpu gpus[] = {{"00000000:18:00.0", false}, {"00000000:3B:00.0", true}};

bool is(const char* what) {
  const char* const set = std::getenv("FAKE_NVML");
  return std::string(set == nullptr ? "good" : set) == what;
}
bool sick(const Gpu* gpu) { return gpu->sick && is("sick"); }
int give(unsigned* to, unsigned value) {
  *to = value;
  return 0;
}
constexpr int invalid_argument = 2, not_supported = 3, not_found = 6, too_small = 7, no_driver = 9;

struct Place {
  char short_bus[16];
  unsigned numbers[5];
  char bus[32];
};

}  // namespace

extern "C" {
int nvmlInit_v2() { return is("none") ? no_driver : 0; }
int nvmlShutdown() { return 0; }
const char* nvmlErrorString(int) { return "Driver Not Loaded"; }
int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  std::strncpy(text, "580.65.06", size);
  return 0;
}
int nvmlDeviceGetCount_v2(unsigned* count) { return give(count, 2); }
int nvmlDeviceGetHandleByIndex_v2(unsigned number, Gpu** gpu) {
  if (number >= 2) return invalid_argument;
  *gpu = &gpus[number];
  return 0;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus, Gpu** gpu) {
  for (auto& one : gpus)
    if (std::strcmp(one.bus, bus) == 0) {
      *gpu = &one;
      return 0;
    }
  return not_found;
}
int nvmlDeviceGetName(Gpu*, char* text, unsigned size) {
  std::strncpy(text, "NVIDIA Test", size);
  return 0;
}
int nvmlDeviceGetPciInfo_v3(Gpu* gpu, Place* place) {
  *place = {};
  std::strncpy(place->bus, gpu->bus, sizeof place->bus - 1);
  return 0;
}
int nvmlDeviceGetTemperature(Gpu* gpu, int sensor, unsigned* value) {
  return sensor == 0 ? give(value, sick(gpu) ? 97 : 41) : invalid_argument;
}
int nvmlDeviceGetClockInfo(Gpu* gpu, int kind, unsigned* value) {
  return kind == 1 ? give(value, sick(gpu) ? 345 : 1980) : invalid_argument;
}
int nvmlDeviceGetMaxClockInfo(Gpu*, int kind, unsigned* value) {
  return kind == 1 ? give(value, 1980) : invalid_argument;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(Gpu* gpu, unsigned long long* reasons) {
  *reasons = sick(gpu) ? 0x48 : 0;
  return 0;
}
int nvmlDeviceGetTotalEccErrors(Gpu* gpu, int type, int counter, unsigned long long* count) {
  if (is("old") || counter != 0) return not_supported;
  *count = type == 1 && sick(gpu) ? 2 : 0;
  return 0;
}
int nvmlDeviceGetRemappedRows(Gpu* gpu, unsigned* corrected, unsigned* uncorrected,
                              unsigned* pending, unsigned* failed) {
  if (is("old")) return not_supported;
  *corrected = 0;
  *uncorrected = sick(gpu) ? 9 : 0;
  *pending = sick(gpu) ? 1 : 0;
  *failed = sick(gpu) ? 1 : 0;
  return 0;
}
int nvmlDeviceGetRetiredPages(Gpu*, int cause, unsigned* count, unsigned long long* addresses) {
  if (!is("old")) return not_supported;
  *count = cause == 0 ? 4 : 8;
  return addresses == nullptr ? too_small : 0;
}
int nvmlDeviceGetRetiredPagesPendingStatus(Gpu*, unsigned* pending) { return give(pending, 0); }
int nvmlDeviceGetCurrPcieLinkGeneration(Gpu* gpu, unsigned* value) {
  return give(value, sick(gpu) ? 1 : 5);
}
int nvmlDeviceGetMaxPcieLinkGeneration(Gpu*, unsigned* value) { return give(value, 5); }
int nvmlDeviceGetCurrPcieLinkWidth(Gpu* gpu, unsigned* value) {
  return give(value, sick(gpu) ? 8 : 16);
}
int nvmlDeviceGetMaxPcieLinkWidth(Gpu*, unsigned* value) { return give(value, 16); }
}
