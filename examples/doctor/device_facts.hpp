// What only a program for GPUs knows: its libraries, their versions when it was compiled and now, and where on the
// bus its GPU is. A program for the Cpu has nothing to say.
#pragma once

#include <dhp/default_device.hpp>

#include "facts.hpp"

#include <array>
#include <string>
#include <vector>

#if defined(__CUDACC__) && defined(DHP_HAS_NCCL)
#include <nccl.h>
#endif

namespace examples::doctor {

#ifdef __CUDACC__

/// 13010 for 13.1, as CUDA's runtime and driver count.
[[nodiscard]] inline std::string cuda_version(int version) {
  return dhp::concat(version / 1000, ".", version % 1000 / 10);
}
/// 92100 for 9.21.0, as cuBLASLt, cuDNN and NCCL count.
[[nodiscard]] inline std::string library_version(std::size_t version) {
  return dhp::concat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

struct LibraryVersion {
  std::string name;
  std::string compiled;
  std::string running;
};

[[nodiscard]] inline std::vector<LibraryVersion> library_versions() {
  int runtime = 0;
  dhp::check_cuda(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  std::vector<LibraryVersion> versions{
      {"CUDA runtime", cuda_version(CUDART_VERSION), cuda_version(runtime)},
      {"cuBLASLt", library_version(CUBLAS_VERSION), library_version(cublasLtGetVersion())},
      {"cuDNN", library_version(CUDNN_VERSION), library_version(cudnnGetVersion())}};
#ifdef DHP_HAS_NCCL
  int nccl = 0;
  if (ncclGetVersion(&nccl) == ncclSuccess)
    versions.push_back({"NCCL", library_version(NCCL_VERSION_CODE),
                        library_version(static_cast<std::size_t>(nccl))});
#endif
  return versions;
}

[[nodiscard]] inline std::vector<Fact> device_facts(dhp::Cuda& dev) {
  int driver = 0;
  dhp::check_cuda(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  std::vector<Fact> facts{
      {"GPU", dev.properties().name},
      {"GPU memory", gibibytes(static_cast<double>(dev.properties().totalGlobalMem))},
      {"CUDA of the driver", cuda_version(driver)}};
  for (const auto& library : library_versions())
    facts.push_back({library.name, library.running, Verdict::failed});
  std::string variables;  // of NCCL, which have to be the same on all ranks
  for (char** entry = ::environ; entry != nullptr && *entry != nullptr; ++entry)
    if (std::string_view(*entry).starts_with("NCCL_"))
      dhp::append_text(variables, dhp::concat(variables.empty() ? "" : " ", *entry));
  facts.push_back({"NCCL's variables", variables.empty() ? "none" : variables});
  return facts;
}

[[nodiscard]] inline std::vector<Problem> device_library_problems(dhp::Cuda&) {
  std::vector<Problem> problems;
  for (const auto& library : library_versions())
    if (library.running != library.compiled)
      problems.push_back(
          {Verdict::warning,
           {},
           dhp::concat(library.name, " ", library.running,
                       " was loaded, but this program was compiled with ", library.compiled,
                       "; put the folder of that one into LD_LIBRARY_PATH, or "
                       "compile again")});
  return problems;
}

/// "00000000:18:00.0", as NVML numbers GPUs.
[[nodiscard]] inline std::string bus_of(dhp::Cuda& dev) {
  std::array<char, 64> bus{};
  dhp::check_cuda(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), dev.number()),
                  "cudaDeviceGetPCIBusId");
  return bus.data();
}
[[nodiscard]] inline std::string device_kind(dhp::Cuda& dev) { return dev.properties().name; }

/// Every GPU that can be seen.
[[nodiscard]] inline int default_ranks() { return dhp::usable_gpus(); }

#else

[[nodiscard]] inline std::vector<Fact> device_facts(dhp::Cpu&) { return {}; }
[[nodiscard]] inline std::vector<Problem> device_library_problems(dhp::Cpu&) { return {}; }
/// None: a rank on the Cpu has no GPU of its own.
[[nodiscard]] inline std::string bus_of(dhp::Cpu&) { return ""; }
[[nodiscard]] inline std::string device_kind(dhp::Cpu&) { return "cpu"; }
[[nodiscard]] inline int default_ranks() { return 1; }

#endif

}  // namespace examples::doctor
