// EnergyMeter: the energy that a GPU uses, counted by NVIDIA's management library (NVML, on GPUs since Volta). The
// driver installs this library, and the constructor looks for it.
#pragma once

#include <dlfcn.h>

#include <memory>
#include <optional>
#include <string>

namespace examples {

class EnergyMeter {
 public:
  /// pci_bus_id: of a GPU, such as "0000:3B:00.0"; empty: no GPU. library: NVML's file.
  explicit EnergyMeter(const std::string& pci_bus_id,
                       const std::string& library = "libnvidia-ml.so.1") {
    if (pci_bus_id.empty()) return;
    library_.reset(::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL));
    if (library_ == nullptr) return;
    const auto start = function<int()>("nvmlInit_v2");
    const auto find = function<int(const char*, Gpu*)>("nvmlDeviceGetHandleByPciBusId_v2");
    count_ = function<int(Gpu, unsigned long long*)>("nvmlDeviceGetTotalEnergyConsumption");
    if (start == nullptr || find == nullptr || start() != 0 || find(pci_bus_id.c_str(), &gpu_) != 0)
      count_ = nullptr;
    began_j_ = total_j();
  }

  /// Returns the energy since the meter was made; nullopt if the GPU does not count it.
  [[nodiscard]] std::optional<double> joules() const {
    const auto now_j = total_j();
    if (!began_j_ || !now_j) return std::nullopt;
    return *now_j - *began_j_;
  }

 private:
  struct Device;  // NVML's type
  using Gpu = Device*;
  struct Close {
    void operator()(auto* library) const { ::dlclose(library); }
  };

  template <class Signature>
  [[nodiscard]] Signature* function(const char* name) const {
    return reinterpret_cast<Signature*>(::dlsym(library_.get(), name));
  }
  [[nodiscard]] std::optional<double> total_j() const {
    unsigned long long millijoules = 0;
    if (count_ == nullptr || count_(gpu_, &millijoules) != 0) return std::nullopt;
    return static_cast<double>(millijoules) * 1e-3;
  }

  std::unique_ptr<void, Close> library_;
  Gpu gpu_ = nullptr;
  int (*count_)(Gpu, unsigned long long*) = nullptr;
  std::optional<double> began_j_;
};

}  // namespace examples
