// Nvml: NVIDIA's management library, opened when the program runs, so that it need not be there to compile, nor to
// start. Only what the doctor asks for is declared, by its documented C interface. A library or GPU that does not know
// an answer gives none.
#pragma once

#include <dhp/core/error.hpp>

#include <dlfcn.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace examples::doctor {

/// What NVML says of a GPU; none: not known.
struct GpuReading {
  std::string name{};
  std::string bus{};
  std::optional<unsigned> temperature_c{};
  std::optional<unsigned> clock_mhz{};  ///< of the multiprocessors
  std::optional<unsigned> most_clock_mhz{};
  std::optional<unsigned long long> slowdown_reasons{};  ///< bits of SlowdownReason and others
  std::optional<unsigned long long> ecc_corrected{};     ///< since the driver was loaded
  std::optional<unsigned long long> ecc_uncorrected{};
  std::optional<unsigned> remapped_rows{};  ///< for errors that could not be corrected
  std::optional<bool> remapping_pending{};
  std::optional<bool> remapping_failed{};
  std::optional<unsigned> retired_pages{};
  std::optional<bool> retirement_pending{};
  std::optional<unsigned> pcie_generation{};
  std::optional<unsigned> most_pcie_generation{};
  std::optional<unsigned> pcie_width{};
  std::optional<unsigned> most_pcie_width{};
};

/// Those reasons for lower clocks that something is wrong behind.
enum SlowdownReason : unsigned long long {
  hardware_slowdown = 0x8,
  software_thermal_slowdown = 0x20,
  hardware_thermal_slowdown = 0x40,
  power_brake_slowdown = 0x80,
};

class Nvml {
 public:
  /// None where the library is not there or finds no driver; `why` is then a few words.
  [[nodiscard]] static std::optional<Nvml> open(const std::string& path, std::string& why) {
    Nvml made;
    made.module_.reset(::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL));
    if (!made.module_) {
      why = "there is no " + path;
      return std::nullopt;
    }
    const auto init = made.function<int()>("nvmlInit_v2");
    if (init == nullptr) {
      why = path + " is no library of NVML";
      return std::nullopt;
    }
    if (const int code = init(); code != 0) {
      const auto text = made.function<const char*(int)>("nvmlErrorString");
      why = dhp::concat("NVML cannot start: ", text == nullptr ? "error" : text(code), " (", code,
                        ")");
      return std::nullopt;
    }
    made.shutdown_.function = made.function<int()>("nvmlShutdown");
    return made;
  }

  [[nodiscard]] std::string driver_version() const {
    const auto ask = function<int(char*, unsigned)>("nvmlSystemGetDriverVersion");
    std::array<char, 96> text{};
    return ask != nullptr && ask(text.data(), unsigned{text.size()}) == 0 ? text.data() : "?";
  }
  /// How many GPUs this machine has, whatever CUDA_VISIBLE_DEVICES says.
  [[nodiscard]] unsigned gpus() const {
    const auto ask = function<int(unsigned*)>("nvmlDeviceGetCount_v2");
    unsigned count = 0;
    return ask != nullptr && ask(&count) == 0 ? count : 0;
  }
  /// By the number of the GPU among those of the machine; none where there is no such GPU.
  [[nodiscard]] std::optional<GpuReading> read(unsigned number) const {
    const auto find = function<int(unsigned, Handle*)>("nvmlDeviceGetHandleByIndex_v2");
    Handle gpu = nullptr;
    if (find == nullptr || find(number, &gpu) != 0) return std::nullopt;
    return reading_of(gpu);
  }
  /// By its place on the bus, "00000000:18:00.0".
  [[nodiscard]] std::optional<GpuReading> read(const std::string& bus) const {
    const auto find = function<int(const char*, Handle*)>("nvmlDeviceGetHandleByPciBusId_v2");
    Handle gpu = nullptr;
    if (find == nullptr || find(bus.c_str(), &gpu) != 0) return std::nullopt;
    auto reading = reading_of(gpu);
    reading.bus = bus;
    return reading;
  }

 private:
  struct Device;  // NVML's own
  using Handle = Device*;
  struct Close {
    void operator()(void* library) const noexcept { ::dlclose(library); }
  };
  struct Shutdown {
    int (*function)() = nullptr;
    Shutdown() = default;
    Shutdown(Shutdown&& other) noexcept : function(std::exchange(other.function, nullptr)) {}
    Shutdown& operator=(Shutdown&&) = delete;
    ~Shutdown() {
      if (function != nullptr) function();
    }
  };
  /// As nvmlPciInfo_t.
  struct Place {
    std::array<char, 16> short_bus;
    unsigned domain, bus, device, ids, subsystem;
    std::array<char, 32> bus_id;
  };

  Nvml() = default;

  template <class Signature>
  [[nodiscard]] Signature* function(const char* name) const {
    return reinterpret_cast<Signature*>(::dlsym(module_.get(), name));
  }
  /// What a function writes to its last argument.
  template <class Value, class... Before>
  [[nodiscard]] std::optional<Value> ask(const char* name, Handle gpu, Before... before) const {
    const auto call = function<int(Handle, Before..., Value*)>(name);
    Value value{};
    if (call == nullptr || call(gpu, before..., &value) != 0) return std::nullopt;
    return value;
  }
  [[nodiscard]] static std::optional<bool> truth(const std::optional<unsigned>& value) {
    return value ? std::optional<bool>(*value != 0) : std::nullopt;
  }

  [[nodiscard]] GpuReading reading_of(Handle gpu) const {
    constexpr int of_multiprocessors = 1;  // kinds of clocks
    constexpr int corrected = 0, uncorrected = 1, since_load = 0;
    GpuReading reading;
    std::array<char, 96> text{};
    const auto name = function<int(Handle, char*, unsigned)>("nvmlDeviceGetName");
    if (name != nullptr && name(gpu, text.data(), unsigned{text.size()}) == 0)
      reading.name = text.data();
    if (const auto place = ask<Place>("nvmlDeviceGetPciInfo_v3", gpu))
      reading.bus = place->bus_id.data();
    reading.temperature_c = ask<unsigned>("nvmlDeviceGetTemperature", gpu, 0);
    reading.clock_mhz = ask<unsigned>("nvmlDeviceGetClockInfo", gpu, of_multiprocessors);
    reading.most_clock_mhz = ask<unsigned>("nvmlDeviceGetMaxClockInfo", gpu, of_multiprocessors);
    reading.slowdown_reasons =
        ask<unsigned long long>("nvmlDeviceGetCurrentClocksThrottleReasons", gpu);
    const char* const errors = "nvmlDeviceGetTotalEccErrors";
    reading.ecc_corrected = ask<unsigned long long>(errors, gpu, corrected, since_load);
    reading.ecc_uncorrected = ask<unsigned long long>(errors, gpu, uncorrected, since_load);
    read_remapping(gpu, reading);
    read_retirement(gpu, reading);
    reading.pcie_generation = ask<unsigned>("nvmlDeviceGetCurrPcieLinkGeneration", gpu);
    reading.most_pcie_generation = ask<unsigned>("nvmlDeviceGetMaxPcieLinkGeneration", gpu);
    reading.pcie_width = ask<unsigned>("nvmlDeviceGetCurrPcieLinkWidth", gpu);
    reading.most_pcie_width = ask<unsigned>("nvmlDeviceGetMaxPcieLinkWidth", gpu);
    return reading;
  }
  void read_remapping(Handle gpu, GpuReading& reading) const {
    const auto call = function<int(Handle, unsigned*, unsigned*, unsigned*, unsigned*)>(
        "nvmlDeviceGetRemappedRows");
    unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0;
    if (call == nullptr || call(gpu, &corrected, &uncorrected, &pending, &failed) != 0) return;
    reading.remapped_rows = uncorrected;
    reading.remapping_pending = pending != 0;
    reading.remapping_failed = failed != 0;
  }
  // Of GPUs before those that remap rows. Without a place for addresses the library tells the count alone.
  void read_retirement(Handle gpu, GpuReading& reading) const {
    const auto call =
        function<int(Handle, int, unsigned*, unsigned long long*)>("nvmlDeviceGetRetiredPages");
    constexpr int for_many_corrected = 0, for_uncorrected = 1, too_small = 7;
    unsigned pages = 0;
    for (const int cause : {for_many_corrected, for_uncorrected}) {
      unsigned count = 0;
      const int code = call == nullptr ? -1 : call(gpu, cause, &count, nullptr);
      if (code != 0 && code != too_small) return;
      pages += count;
    }
    reading.retired_pages = pages;
    reading.retirement_pending =
        truth(ask<unsigned>("nvmlDeviceGetRetiredPagesPendingStatus", gpu));
  }

  std::unique_ptr<void, Close> module_;  // closed after the shutdown
  Shutdown shutdown_;
};

}  // namespace examples::doctor
