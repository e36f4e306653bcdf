// Examines a cluster before training: all ranks run the same checks, and rank 0 reports what they found.
#include <dhp/comm/rendezvous/address.hpp>
#include <dhp/default_device.hpp>

#include "../report/output_file.hpp"
#include "../report/progress.hpp"
#include "../run/ranks.hpp"
#include "calibrate.hpp"
#include "collectives.hpp"
#include "links.hpp"
#include "network.hpp"
#include "versions.hpp"

#include <atomic>
#include <cstdio>
#include <string>
#include <utility>

namespace examples::doctor {
namespace {

using Dev = dhp::DefaultDevice;

/// Gathers the hosts and kinds of all ranks before any measurement.
[[nodiscard]] Examination<Dev> introduced(Dev& dev, dhp::Comm<Dev> world,
                                          const DoctorOptions& options) {
  Examination<Dev> exam{dev, std::move(world), options};
  exam.hosts = gather_texts(dev, exam.world, dhp::detail::host_name());
  exam.kinds = gather_texts(dev, exam.world,
                            value_in("/proc/cpuinfo", "model name") + ", " + device_name(dev));
  return exam;
}

/// Runs one check. If it throws, records that as its finding and rethrows.
void run(Examination<Dev>& exam, Report& report, const char* name, auto check) {
  try {
    auto finding = check(exam);
    finding.check = name;
    report.findings.push_back(std::move(finding));
  } catch (const dhp::Error& error) {
    auto& broken = report.findings.emplace_back();
    broken.check = name;
    broken.problems = {{Verdict::failed, {}, "it did not come to its end: " + error.sentence()}};
    throw;
  }
}

void show(const Report& report, const OutputFile& json) {
  std::fputs(page_of(report).c_str(), stdout);
  std::fflush(stdout);
  json.write(json_of(report));
}

/// Returns the exit status, the same on all ranks.
[[nodiscard]] int examine(Dev& dev, dhp::Comm<Dev> world, const DoctorOptions& options) {
  const double start_s = now_s();
  const auto of_rank_0 = [&](const std::string& path) { return world.rank() == 0 ? path : ""; };
  const OutputFile json("--json", of_rank_0(options.json)),
      cluster("--calibrate", of_rank_0(options.calibrate));
  auto exam = introduced(dev, std::move(world), options);
  if (!options.calibrate.empty()) {
    cluster.write(calibrated(exam).text());
    return 0;
  }
  Report report{exam.hosts, device_name(dev), 0, {}};
  const auto tell = [&] {
    report.seconds = now_s() - start_s;
    if (exam.rank() == 0) show(report, json);
  };
  try {
    run(exam, report, "versions", check_versions<Dev>);
    run(exam, report, "compute", check_compute<Dev>);
    run(exam, report, "collectives", check_collectives<Dev>);
    run(exam, report, "network", check_network<Dev>);
    run(exam, report, "links", check_links<Dev>);
  } catch (const dhp::Error&) {
    tell();
    throw;
  }
  tell();
  return report.exit_status();
}

}  // namespace
}  // namespace examples::doctor

int main(int argc, char** argv) {
  using namespace examples::doctor;
  DoctorOptions options;
  if (const auto status = parse_doctor(argc, argv, !Dev::host_accessible, options)) return *status;
  return examples::exit_status_of([&] {
    std::atomic<int> status{0};
    const auto body = [&](Dev& dev, dhp::Comm<Dev> world, dhp::Deadlines*) {
      status = examine(dev, std::move(world), options);
    };
    examples::start_ranks(options.run, body);
    return status.load();
  });
}
