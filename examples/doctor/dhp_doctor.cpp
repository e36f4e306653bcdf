// Looks a cluster over before training: all ranks go through the same checks, and rank 0 says what was found.
#include <dhp/comm/meet/address.hpp>
#include <dhp/core/config.hpp>
#include <dhp/default_device.hpp>

#include "../common/ranks.hpp"
#include "clocks.hpp"
#include "collectives.hpp"
#include "copies.hpp"
#include "gemm.hpp"
#include "gpu_health.hpp"
#include "json.hpp"
#include "links.hpp"
#include "network.hpp"
#include "self_test.hpp"
#include "storage.hpp"
#include "table.hpp"
#include "versions.hpp"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <thread>

namespace examples::doctor {
namespace {

using Dev = dhp::DefaultDevice;

/// Who the ranks are, before anything is measured.
[[nodiscard]] Examination<Dev> introduced(Dev& dev, dhp::Comm<Dev> world,
                                          const DoctorOptions& options) {
  Examination<Dev> exam{dev, std::move(world), options};
  exam.hosts = gather_texts(dev, exam.world, dhp::host_name());
  exam.kinds = gather_texts(dev, exam.world, dhp::concat(cpu_model(), ", ", device_kind(dev)));
  const auto own = static_cast<std::size_t>(exam.rank());
  const auto ranks_here = std::count(exam.hosts.begin(), exam.hosts.end(), exam.hosts[own]);
  const int cores = usable_cores();
  const bool crowded = Dev::host_accessible && ranks_here * options.run.threads > cores;
  exam.notes =
      gather_texts(dev, exam.world,
                   crowded ? dhp::concat(ranks_here, " ranks share ", cores,
                                         cores == 1 ? " core" : " cores", " there, so times vary")
                           : "");
  return exam;
}

/// Keeps a GPU busy for a while; returns whether the device is one.
[[nodiscard]] bool load(Examination<Dev>& exam) {
  if (Dev::host_accessible) return false;
  KnownProduct<Dev> product(exam.dev, gemm_rows<Dev>(exam.options.quick));
  for (int times = 0; times < 400; ++times) product.multiply(exam.dev);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  return true;
}

/// One rank's way through all checks; what was found before one of them threw stays.
class Rounds {
 public:
  Rounds(Examination<Dev>& exam, Report& report) : exam_(exam), report_(report) {}

  void all() {
    run("versions", [&] { return check_versions(exam_); });
    run("clock", [&] { return check_clocks(exam_); });
    run("copies", [&] { return check_copies(exam_); });
    run("gemm", [&] { return check_gemm(exam_); });
    run("gpu", [&] { return check_gpus(exam_, bus_of(exam_.dev), [&] { return load(exam_); }); });
    run("collectives", [&] { return check_collectives(exam_); });
    run("network", [&] { return check_network(exam_); });
    run("links", [&] { return check_links(exam_); });
    run("storage", [&] { return check_storage(exam_); });
  }

 private:
  template <class Check>
  void run(const char* name, Check check) {
    if (exam_.rank() == 0 && ::isatty(STDERR_FILENO) != 0) std::fprintf(stderr, "\r%-12s\r", name);
    try {
      report_.findings.push_back(check());
    } catch (const dhp::Error& error) {
      Finding broken;
      broken.check = name;
      broken.problems.push_back(
          {Verdict::failed, {}, "it could not be finished: " + error.sentence()});
      report_.findings.push_back(std::move(broken));
      throw;
    }
  }

  Examination<Dev>& exam_;
  Report& report_;
};

void show(const Report& report, const DoctorOptions& options) {
  const std::set<std::string> hosts(report.hosts.begin(), report.hosts.end());
  const auto first_line =
      dhp::concat("dhp ", dhp::version_major, ".", dhp::version_minor, ".", dhp::version_patch,
                  ": ", report.hosts.size(), report.hosts.size() == 1 ? " rank" : " ranks", " on ",
                  hosts.size(), hosts.size() == 1 ? " host" : " hosts", ", ", report.device, "; ",
                  three_digits(report.seconds), " s");
  std::fputs(table_of(report.findings, first_line).c_str(), stdout);
  std::fflush(stdout);
  if (!options.json.empty()) write_report(report, options.json);
}

/// The exit status that this rank sees; the worst of all ranks, where these can still tell each other.
[[nodiscard]] int examine(Dev& dev, dhp::Comm<Dev> world, const DoctorOptions& options) {
  const Stopwatch watch;
  auto exam = introduced(dev, std::move(world), options);
  Report report{exam.hosts, device_kind(dev), 0, {}};
  const auto tell = [&] {
    report.seconds = watch.seconds();
    if (exam.rank() == 0) show(report, options);
  };
  try {
    Rounds(exam, report).all();
  } catch (const dhp::Error&) {
    tell();
    throw;
  }
  tell();
  const int own = exit_status(report.findings);
  bool failed = own == 1, warned = own == 2;
  for (const double other : gather(dev, exam.world, {static_cast<double>(own)})) {
    failed = failed || other == 1;
    warned = warned || other == 2;
  }
  return failed ? 1 : warned ? 2 : 0;
}

[[nodiscard]] int examine_all(const DoctorOptions& options) {
  std::atomic<int> status{0};
  start_ranks<Dev>(options.run, [&](dhp::Comm<Dev> world, int local_rank, dhp::Deadlines*) {
    auto dev = make_device<Dev>(options.run, local_rank);
    status = examine(dev, std::move(world), options);
  });
  return status;
}

[[nodiscard]] int run(DoctorOptions options) {
  if (options.run.mesh.data == 0) options.run.mesh.data = default_ranks();
  return options.self_test ? self_test(options, "/proc/self/exe") : examine_all(options);
}

}  // namespace
}  // namespace examples::doctor

int main(int argc, char** argv) {
  constexpr bool gpu = !dhp::DefaultDevice::host_accessible;
  const auto parsed = examples::doctor::parse_doctor(argc, argv, gpu);
  if (parsed.exit_status) return *parsed.exit_status;
  try {
    return examples::doctor::run(parsed.options);
  } catch (const dhp::Error& error) {
    std::fprintf(stderr, "error: %s\n", error.sentence().c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
  }
  return 1;
}
