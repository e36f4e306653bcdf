#include "options.hpp"

#include <dhp/core/config.hpp>

#include "../common/command_line.hpp"
#include "json.hpp"

#include <iostream>
#include <vector>

namespace examples::doctor {
namespace {

void add_options(CLI::App& app, DoctorOptions& options, std::string& limits,
                 std::vector<std::string>& faults, bool gpu) {
  app.option_defaults()->always_capture_default();
  app.add_option("--ranks", options.run.mesh.data,
                 gpu ? "Ranks to start as threads; 0: one for each GPU"
                     : "Ranks to start as threads; a launcher starts its own")
      ->check(CLI::Range(gpu ? 0 : 1, 1024))
      ->group("Ranks");
  if (gpu)
    app.add_option("--device", options.run.device,
                   "First GPU of this process; further ranks of it take the next ones")
        ->check(not_negative_number())
        ->group("Ranks");
  else
    app.add_option("--threads", options.run.threads, "Threads per rank inside its ops (CPU)")
        ->check(positive_number())
        ->group("Ranks");
  app.add_option("--comm-timeout", options.run.comm_timeout,
                 "Seconds after which ranks no longer wait for another; 0 waits for ever")
      ->check(not_negative_number())
      ->group("Ranks");
  add_process_options(app, options.run);

  app.add_flag("--quick", options.quick, "Less of everything: a few seconds")->group("Checks");
  app.add_option("--storage", options.storage,
                 "Directory that each rank writes a file to, reads it back and deletes it")
      ->group("Checks");
  app.add_option("--storage-mb", options.storage_mb, "Size of that file, in MiB")
      ->check(positive_number())
      ->group("Checks");
  app.add_option("--limits", limits, "JSON file of limits; what it leaves out stays")
      ->group("Checks");
  app.add_flag("--print-limits", options.print_limits, "Print the limits, and do nothing else")
      ->group("Checks");
  app.add_option("--json", options.json, "File for everything that was found")->group("Output");

  app.add_flag("--self-test", options.self_test,
               "Make each thing wrong on purpose, and see whether it is found")
      ->group("Tests");
  app.add_option("--inject", faults, "Make one thing wrong on a rank: NAME=RANK; for tests")
      ->group("Tests");
  app.add_option("--nvml", options.nvml, "NVIDIA's management library; for tests")->group("Tests");
}

/// What can be known to be wrong before any rank is started.
void check_options(DoctorOptions& options, bool ranks_given) {
  if (const auto me = dhp::ProcessRank::from_environment(options.run.rank_flags);
      me && me->size > 1) {
    dhp::check(!ranks_given || options.run.mesh.data == me->size, "--ranks ", options.run.mesh.data,
               " is given, but there are ", me->size, " processes (", me->launcher,
               "); leave --ranks out");
    dhp::check(!options.self_test, "--self-test starts its ranks itself, but there are ", me->size,
               " processes (", me->launcher, "); start it once, without a launcher");
    options.run.mesh.data = me->size;
  }
  const int ranks = options.run.mesh.data;
  dhp::check(ranks == 0 || options.faults.last_rank() < ranks, "--inject names rank ",
             options.faults.last_rank(), ", but the last one is rank ", ranks - 1);
}

}  // namespace

ParsedDoctor parse_doctor(int argc, char** argv, bool gpu) {
  ParsedDoctor parsed;
  auto& options = parsed.options;
  options.run.comm_timeout = 60;
  options.run.mesh.data = gpu ? 0 : 1;
  CLI::App app(
      "Looks a cluster over before training: versions, GPUs, speed of copies and products, "
      "collectives, links, storage and clocks of all ranks.\n"
      "Exit status: 0 all is well, 1 something has failed, 2 warnings only, 64 a wrong "
      "command line.");
  std::string limits;
  std::vector<std::string> faults;
  add_options(app, options, limits, faults, gpu);
  app.set_version_flag("--version", dhp::concat("dhp ", dhp::version_major, ".", dhp::version_minor,
                                                ".", dhp::version_patch));
  app.failure_message([](const CLI::App*, const CLI::Error& error) {
    return dhp::concat("error: ", error.what(), " (--help lists what there is)\n");
  });
  try {
    app.parse(argc, argv);
    for (const auto& fault : faults) options.faults.add(fault);
    if (!limits.empty()) options.limits = read_limits(limits);
    check_options(options, app.count("--ranks") > 0);
  } catch (const CLI::ParseError& error) {
    parsed.exit_status = app.exit(error) == 0 ? 0 : usage_status;
    return parsed;
  } catch (const dhp::Error& error) {
    std::cerr << "error: " << error.sentence() << "\n";
    parsed.exit_status = usage_status;
    return parsed;
  }
  if (options.print_limits) {
    std::cout << limits_text(options.limits);
    parsed.exit_status = 0;
  }
  return parsed;
}

}  // namespace examples::doctor
