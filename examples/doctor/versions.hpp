// The versions check: the program, its libraries, the host and the GPU should be the same on all ranks.
#pragma once

#include <dhp/core/hash.hpp>
#include <dhp/core/open_file.hpp>
#include <dhp/default_device.hpp>

#include "../report/host_memory.hpp"
#include "examination.hpp"

#include <sys/utsname.h>
#include <unistd.h>

#if defined(DHP_HAS_GLOO)
#include <gloo/config.h>
#endif
#if defined(__CUDACC__) && defined(DHP_HAS_NCCL)
#include <nccl.h>
#endif

namespace examples::doctor {

[[nodiscard]] inline std::string gibibytes(double bytes) {
  return dhp::concat(static_cast<std::int64_t>(bytes / 0x1p30 + 0.5), " GiB");
}

/// Returns a hash of this program's own file.
[[nodiscard]] inline std::string program_hash() {
  return dhp::concat(dhp::detail::fnv1a(dhp::text_of("/proc/self/exe")));
}

[[nodiscard]] inline std::vector<Fact> host_facts() {
  std::vector<Fact> facts{{"dhp", version(), Verdict::failed}, {"program", program_hash()}};
#if defined(DHP_HAS_GLOO)
  facts.push_back(
      {"Gloo", dhp::concat(GLOO_VERSION_MAJOR, ".", GLOO_VERSION_MINOR, ".", GLOO_VERSION_PATCH),
       Verdict::failed});
#endif
  facts.push_back({"CPU", value_in("/proc/cpuinfo", "model name")});
  facts.push_back({"cores", std::to_string(usable_cores())});
  const auto page = static_cast<double>(::sysconf(_SC_PAGESIZE));
  facts.push_back({"memory", gibibytes(page * static_cast<double>(::sysconf(_SC_PHYS_PAGES)))});
  utsname system{};
  if (::uname(&system) == 0) facts.push_back({"kernel", system.release});
  facts.push_back({"system", value_in("/etc/os-release", "PRETTY_NAME")});
  return facts;
}

#ifdef __CUDACC__

[[nodiscard]] inline std::vector<Fact> device_facts(dhp::Cuda& dev) {
  const auto cuda = [](int version) {  // 13010 is 13.1
    return dhp::concat(version / 1000, ".", version % 1000 / 10);
  };
  const auto library = [](std::size_t version) {  // 92100 is 9.21.0
    return dhp::concat(version / 10000, ".", version / 100 % 100, ".", version % 100);
  };
  int driver = 0, runtime = 0, nccl = 0;
  dhp::check_cuda(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  dhp::check_cuda(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
#ifdef DHP_HAS_NCCL
  ncclGetVersion(&nccl);
#endif
  std::string variables;
  for (char** entry = ::environ; entry != nullptr && *entry != nullptr; ++entry)
    if (std::string_view(*entry).starts_with("NCCL_"))
      variables += dhp::concat(variables.empty() ? "" : " ", *entry);
  return {{"GPU", dev.properties().name},
          {"GPU memory", gibibytes(static_cast<double>(dev.properties().totalGlobalMem))},
          {"CUDA of the driver", cuda(driver)},
          {"CUDA runtime", cuda(runtime), Verdict::failed},
          {"cuBLASLt", library(cublasLtGetVersion()), Verdict::failed},
          {"cuDNN", library(cudnnGetVersion()), Verdict::failed},
          {"NCCL", library(static_cast<std::size_t>(nccl)), Verdict::failed},
          {"NCCL's variables", variables.empty() ? "none" : variables}};
}
[[nodiscard]] inline std::string device_name(dhp::Cuda& dev) { return dev.properties().name; }

#else

[[nodiscard]] inline std::vector<Fact> device_facts(dhp::Cpu&) { return {}; }
[[nodiscard]] inline std::string device_name(dhp::Cpu&) { return "cpu"; }

#endif

template <class Dev>
[[nodiscard]] Finding check_versions(Examination<Dev>& exam) {
  Finding finding;
  auto facts = host_facts();
  for (auto& fact : device_facts(exam.dev)) facts.push_back(std::move(fact));
  if (exam.fault("other-version")) facts.front().value = "0.0.0";

  const auto of_rank = dhp::detail::gather_values(exam.dev, exam.world, facts);
  constexpr std::size_t facts_a_line = 4;
  for (std::size_t at = 0; at < facts.size(); ++at) {
    const auto& [name, value, verdict] = of_rank.front()[at];
    if (at % facts_a_line == 0) finding.notes.emplace_back();
    else finding.notes.back() += ", ";
    finding.notes.back() += name + " " + value;
  }
  finding.problems = differences(of_rank, exam.hosts);
  return finding;
}

}  // namespace examples::doctor
