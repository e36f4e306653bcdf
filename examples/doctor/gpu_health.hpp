// The gpu check: what NVML and the kernel's log say of each rank's GPU, held against its own maximum and the limits.
// Clocks and the generation of the PCIe link are judged under load only: a GPU with nothing to do lowers both.
#pragma once

#include "examination.hpp"
#include "kernel_log.hpp"
#include "nvml.hpp"

namespace examples::doctor {

/// NVML's answers for a GPU in a bad way, for --inject sick-gpu.
[[nodiscard]] inline GpuReading sick_gpu() {
  GpuReading sick;
  sick.name = "a GPU made sick";
  sick.bus = "00000000:00:00.0";
  sick.temperature_c = 101;
  sick.slowdown_reasons = hardware_thermal_slowdown;
  sick.ecc_uncorrected = 3;
  sick.remapping_failed = true;
  sick.pcie_width = 4;
  sick.most_pcie_width = 16;
  return sick;
}

/// where: "rank 3 (host node7), GPU 00000000:18:00.0".
[[nodiscard]] inline std::vector<Problem> judge_gpu(const GpuReading& gpu, const Limits& limits,
                                                    bool under_load, const std::string& where) {
  std::vector<Problem> problems;
  const auto say = [&](Verdict verdict, const auto&... text) {
    if (verdict != Verdict::ok)
      problems.push_back({verdict, {}, dhp::concat(where, ": ", text...)});
  };
  const auto count = [&](const auto& value, const Limit& limit, const char* what,
                         const char* way_out) {
    if (value) say(above(static_cast<double>(*value), limit), *value, what, "; ", way_out);
  };
  count(gpu.temperature_c, limits.gpu_temperature_c, " degrees Celsius",
        "look after its cooling and its neighbours");
  count(gpu.ecc_uncorrected, limits.gpu_ecc_uncorrected,
        " ECC errors that could not be corrected since the driver was loaded",
        "reset the GPU, and have it replaced if they come again");
  count(gpu.ecc_corrected, limits.gpu_ecc_corrected,
        " corrected ECC errors since the driver was loaded", "watch it");
  count(gpu.remapped_rows, limits.gpu_remapped_rows, " rows of its memory are remapped",
        "watch it, and have it replaced if they become more");
  count(gpu.retired_pages, limits.gpu_retired_pages, " pages of its memory are retired",
        "have it replaced if they become more");
  if (gpu.remapping_failed.value_or(false))
    say(Verdict::failed, "a row of its memory could not be remapped; have it replaced");
  if (gpu.remapping_pending.value_or(false) || gpu.retirement_pending.value_or(false))
    say(Verdict::warning, "bad memory waits to be taken out of use; reset the GPU");
  if (gpu.pcie_width && gpu.most_pcie_width && *gpu.pcie_width < *gpu.most_pcie_width)
    say(Verdict::warning, "its PCIe link has ", *gpu.pcie_width, " lanes of ", *gpu.most_pcie_width,
        "; is it seated well, and in the right slot?");
  if (gpu.slowdown_reasons) {
    const auto reasons = *gpu.slowdown_reasons;
    if ((reasons & power_brake_slowdown) != 0)
      say(Verdict::warning, "it is slowed down by the power brake; look after its power supply");
    if ((reasons & (hardware_thermal_slowdown | software_thermal_slowdown)) != 0)
      say(Verdict::warning, "it is slowed down because it is hot; look after its cooling");
    else if ((reasons & hardware_slowdown) != 0)
      say(Verdict::warning, "it is slowed down by its hardware; look after cooling and power");
  }
  if (!under_load) return problems;
  if (gpu.clock_mhz && gpu.most_clock_mhz && *gpu.most_clock_mhz > 0)
    say(below(static_cast<double>(*gpu.clock_mhz) / *gpu.most_clock_mhz, limits.gpu_clock_share),
        "its clock is ", *gpu.clock_mhz, " MHz of ", *gpu.most_clock_mhz,
        " MHz under load; look after power limits, cooling and locked clocks");
  if (gpu.pcie_generation && gpu.most_pcie_generation &&
      *gpu.pcie_generation < *gpu.most_pcie_generation)
    say(Verdict::warning, "its PCIe link runs as generation ", *gpu.pcie_generation, " of ",
        *gpu.most_pcie_generation, " under load; is it seated well, and in the right slot?");
  return problems;
}

/// Names of what NVML does not tell of this GPU.
[[nodiscard]] inline std::string unknown_of(const GpuReading& gpu) {
  std::string text;
  const auto add = [&](bool known, const char* name) {
    if (!known) dhp::append_text(text, dhp::concat(text.empty() ? "" : ", ", name));
  };
  add(gpu.temperature_c.has_value(), "temperature");
  add(gpu.clock_mhz.has_value() && gpu.most_clock_mhz.has_value(), "clocks");
  add(gpu.slowdown_reasons.has_value(), "reasons of a slowdown");
  add(gpu.ecc_uncorrected.has_value(), "ECC errors");
  add(gpu.remapped_rows.has_value() || gpu.retired_pages.has_value(), "rows or pages out of use");
  add(gpu.pcie_width.has_value() && gpu.pcie_generation.has_value(), "PCIe link");
  return text;
}

/// Problems by the Xids of a log, of the GPUs whose place on the bus is `bus`.
[[nodiscard]] inline std::vector<Problem> judge_xids(std::string_view log, const std::string& bus,
                                                     const std::string& where) {
  std::vector<Problem> problems;
  for (const auto& xid : xids_in(log)) {
    // NVML has eight digits of the domain and a function, the log four and none.
    if (bus.find(xid.bus) == bus.npos) continue;
    const auto verdict = verdict_on_xid(xid.number);
    if (verdict == Verdict::ok) continue;
    problems.push_back({verdict,
                        {},
                        dhp::concat(where, ": Xid ", xid.number,
                                    " since the host was started (see the kernel's log, and "
                                    "NVIDIA's list of Xids); reset the GPU, and have it replaced "
                                    "if it comes again")});
  }
  return problems;
}

/// load() gives the GPU work that is still under way when it returns, and tells whether it did. bus: of the rank's own
/// GPU; empty: the first rank of each host looks at all that are there.
template <class Dev, class Load>
[[nodiscard]] Finding check_gpus(Examination<Dev>& exam, const std::string& bus, Load load) {
  Finding finding;
  finding.check = "gpu";
  std::string why;
  const auto nvml = Nvml::open(exam.options.nvml, why);
  const auto own = static_cast<std::size_t>(exam.rank());
  const bool first_of_host = std::find(exam.hosts.begin(), exam.hosts.end(), exam.hosts[own]) ==
                             exam.hosts.begin() + exam.rank();
  std::vector<GpuReading> readings;
  const bool under_load = load();
  if (nvml && !bus.empty()) {
    if (auto reading = nvml->read(bus)) readings.push_back(std::move(*reading));
    else why = "NVML does not know the GPU " + bus;
  } else if (nvml && first_of_host) {
    for (unsigned number = 0; number < nvml->gpus(); ++number)
      if (auto reading = nvml->read(number)) readings.push_back(std::move(*reading));
    if (readings.empty()) why = "NVML finds no GPU";
  }
  exam.dev.synchronize();
  if (exam.fault("sick-gpu")) readings = {sick_gpu()};

  std::vector<Problem> problems;
  std::string unknown, log_why;
  const auto log = readings.empty() ? std::string() : kernel_log(log_why);
  for (const auto& reading : readings) {
    const auto where = dhp::concat(exam.who(exam.rank()), ", GPU ", reading.bus);
    for (auto& problem : judge_gpu(reading, exam.limits(), under_load, where))
      problems.push_back(std::move(problem));
    for (auto& problem : judge_xids(log, reading.bus, where))
      problems.push_back(std::move(problem));
    if (unknown.empty()) unknown = unknown_of(reading);
  }
  if (!log_why.empty()) unknown += dhp::concat(unknown.empty() ? "" : ", ", "Xids (", log_why, ")");
  gather_problems(exam, problems, finding);

  const auto figure = [&](const char* name, const char* unit, const auto& value) {
    const bool known = !readings.empty() && value(readings.front());
    finding.figures.push_back(gather_figure(
        exam, name, unit, known ? static_cast<double>(*value(readings.front())) : not_known));
  };
  figure("temperature", "C", [](const auto& gpu) { return gpu.temperature_c; });
  figure("clock", "MHz", [](const auto& gpu) { return gpu.clock_mhz; });
  figure("PCIe lanes", "", [](const auto& gpu) { return gpu.pcie_width; });

  const auto seen = gather(exam.dev, exam.world, {static_cast<double>(readings.size())});
  double gpus = 0;
  for (const double count : seen) gpus += count;
  const auto unknowns = gather_texts(exam.dev, exam.world, unknown);
  const auto whys = gather_texts(exam.dev, exam.world, why);
  if (gpus == 0) return skipped("gpu", whys.front() + ": no GPU is looked at");
  finding.summary = dhp::concat(static_cast<int>(gpus), gpus == 1 ? " GPU" : " GPUs");
  for (const auto& text : unknowns)
    if (!text.empty()) {
      finding.summary += "; not known: " + text;
      break;
    }
  if (!bus.empty())
    for (std::size_t rank = 0; rank < seen.size(); ++rank)
      if (seen[rank] == 0)
        finding.problems.push_back(
            {Verdict::warning,
             {static_cast<int>(rank)},
             dhp::concat(exam.who(static_cast<int>(rank)), ": nothing is known of its GPU (",
                         whys[rank], "); is the driver whole?")});
  return finding;
}

}  // namespace examples::doctor
