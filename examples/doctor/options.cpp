#include "options.hpp"

#include "../options/command_line.hpp"
#include "finding.hpp"

namespace examples::doctor {
namespace {

constexpr int usage_status = 64;  // differs from the statuses of the checks

void add_options(CommandLine& app, DoctorOptions& options, int& ranks, bool gpu) {
  auto& run = options.run;
  app.option_defaults()->always_capture_default();
  app.option_defaults()->group("Ranks");
  app.add_option("--ranks", ranks, "Ranks to start as threads (without a launcher)",
                 CLI::Range(1, 1024));
  app.add_option("--tensor-parallel", run.layout.tensor, "Size of the tensor axis",
                 positive_number());
  app.add_option("--pipeline-parallel", run.layout.pipeline, "Size of the pipeline axis",
                 positive_number());
  add_device_option(app, run, gpu);
  app.add_option("--comm-timeout", run.comm_timeout,
                 "Seconds that a rank waits for another; 0: no limit", not_negative_number());
  add_process_options(app, run);

  app.option_defaults()->group("Checks");
  app.add_flag("--quick", options.quick, "Measure less, in a few seconds");
  app.add_option("--min-bandwidth", run.min_bandwidth_gb_s,
                 "GB/s that every axis must reach; 0: no check", not_negative_number());
  app.add_option("--tolerance", options.tolerance,
                 "Factor on all limits of slowness, above 1 for busy machines", positive_number());
  app.add_option("--json", options.json, "File to which rank 0 writes all results, as JSON");
  app.add_option("--calibrate", options.calibrate,
                 "Instead of checks: cluster file for dhp_plan, which rank 0 writes");
  app.add_option("--inject", options.fault, "Fault to inject, to see that it is found",
                 CLI::IsMember({"other-version", "slow-copy", "slow-gemm", "wrong-gemm",
                                "wrong-sum", "missing-rank", "slow-link"}));
  app.add_option("--inject-rank", options.faulty_rank, "Rank that gets the fault of --inject",
                 not_negative_number());
}

/// Rejects options that would do nothing.
void check_used(const CLI::App& app) {
  const auto given = [&](const char* name) { return app.count(name) > 0; };
  for (const auto* name : {"--json", "--min-bandwidth", "--tolerance", "--inject"})
    dhp::check(!given("--calibrate") || !given(name),
               "--calibrate measures and does not check: leave out ", name);
  dhp::check(!given("--inject-rank") || given("--inject"),
             "--inject-rank needs --inject with a fault");
}

/// Completes the layout; a launcher's number of ranks replaces --ranks.
void complete(DoctorOptions& options, int ranks) {
  auto& run = options.run;
  auto& mesh = run.layout;
  if (const auto me = dhp::ProcessRank::from_environment(run.rank_flags); me && me->size > 1)
    ranks = me->size;
  const int inner = mesh.tensor * mesh.pipeline;
  dhp::check(ranks % inner == 0, "--tensor-parallel times --pipeline-parallel is ", inner,
             ", which does not divide the number of ranks, ", ranks, "; start a multiple of it");
  dhp::check(options.faulty_rank < ranks, "--inject-rank ", options.faulty_rank,
             " is none of the ranks, 0 to ", ranks - 1);
  // A wrong product shows on one rank alone. A slow link shows beside other links, other faults beside another rank.
  const int least = options.fault == "slow-link" ? 3 : options.fault == "wrong-gemm" ? 1 : 2;
  dhp::check(options.fault.empty() || ranks >= least, "--inject ", options.fault,
             " shows only beside other ranks: start at least ", least);
  mesh.data = ranks / inner;
}

}  // namespace

std::optional<int> parse_doctor(int argc, char** argv, bool gpu, DoctorOptions& options) {
  options.run.comm_timeout = 60;
  int ranks = 1;
  CommandLine app(
      "Examines a cluster before training: versions, speed and correctness of each rank, "
      "collectives, the network of each axis, and the link of every two ranks.\n"
      "Exit status: 0 all is well, 1 a failure, 2 warnings only, 64 a wrong command line.");
  add_options(app, options, ranks, gpu);
  return app.read(
      argc, argv,
      [&] {
        check_used(app);
        complete(options, ranks);
      },
      usage_status);
}

}  // namespace examples::doctor
