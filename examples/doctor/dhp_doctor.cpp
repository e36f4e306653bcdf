// Examines a cluster before training: all ranks run the same checks, and rank 0 reports what they found.
#include <dhp/comm/mesh.hpp>
#include <dhp/comm/rendezvous/address.hpp>
#include <dhp/default_device.hpp>

#include "../report/output_file.hpp"
#include "../report/progress.hpp"
#include "../report/transport_report.hpp"
#include "../run/ranks.hpp"
#include "calibrate.hpp"
#include "collectives.hpp"
#include "links.hpp"
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

/// The network check: measures bandwidth and latency of an all_reduce over each axis of the mesh, like trainers at
/// their start. All groups of an axis are measured at the same time.
[[nodiscard]] Finding check_network(Examination<Dev>& exam) {
  if (exam.size() == 1) return skipped("one rank has no partner");
  Finding finding;
  dhp::Mesh<Dev> mesh(exam.world, exam.options.run.layout);
  const std::int64_t bytes = (exam.options.quick ? 1 : 16) << 20;
  const auto report = measure_transports(exam.dev, mesh, exam.host(exam.rank()), bytes);
  finding.notes.push_back(dhp::concat("all_reduce of ", bytes >> 20, " MiB, and of one number"));
  for (const auto& axis : report.axes) {
    finding.notes.push_back(dhp::concat(axis.axis, " axis: groups of ", axis.ranks, " ranks, ",
                                        axis.transport, axis.one_host ? "" : ", across hosts"));
    finding.figures.push_back({axis.axis + " axis", "GB/s", {axis.bandwidth_bytes_per_s / 1e9}});
    finding.figures.push_back({axis.axis + " latency", "us", {axis.latency_s * 1e6}});
    if (const auto why = axis.too_slow(1e9 * exam.options.run.min_bandwidth_gb_s); !why.empty())
      finding.problems.push_back({Verdict::failed, {}, why});
    if (const auto doubt = axis.doubt(); !doubt.empty())
      finding.problems.push_back({Verdict::warning, {}, doubt});
  }
  return finding;
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
    run(exam, report, "network", check_network);
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
