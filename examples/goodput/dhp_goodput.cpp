// dhp_goodput prints which share of its time a large job spends on useful work, for several intervals between
// checkpoints, with restarts or elastic. It computes the share from the time of a step and the failure rate of ranks.
#include "../options/checked_options.hpp"
#include "../report/progress.hpp"
#include "goodput.hpp"

#include <cstdio>

namespace {

using namespace examples;

void print_table(GoodputOptions of) {
  const double best = of.best_interval();
  of.interval = 0.25 * best;
  of.check_sizes();  // checks the table's shortest interval, with the most checkpoints
  std::printf("%d %s: one of them fails every %.0f s. Daly's interval is %.0f s (Young: %.0f s).\n",
              of.ranks, of.ranks == 1 ? "rank" : "ranks", of.failure(), best,
              std::sqrt(2 * of.save * of.failure()));
  std::printf("Closed form, restart with spares for all: goodput %.2f %%\n\n",
              100 * daly_goodput(best, of.save, of.restart, of.failure()));
  std::printf("In %% of the time:\n%-8s %9s %8s %7s %7s %7s %8s %9s\n", "mode", "interval",
              "goodput", "slower", "lost", "saving", "stopped", "failures");
  for (const bool elastic : {false, true})
    for (const double factor : {0.25, 0.5, 1.0, 2.0, 4.0}) {
      of.elastic = elastic;
      of.interval = std::max(of.step, best * factor);
      const auto found = GoodputSimulation(of).run();
      std::printf("%-8s %9.0f %8.2f %7.2f %7.2f %7.2f %8.2f %9d\n", elastic ? "elastic" : "restart",
                  found.interval, 100 * found.useful, 100 * found.slow, 100 * found.lost,
                  100 * found.saving, 100 * found.stopped, found.failures);
    }
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app(
      "Simulates a job of many ranks, some of which fail or are slow, and prints the share of its "
      "time that is useful work.");
  GoodputOptions of;
  double hours = of.rank_failure / 3600, days = of.duration / 86400, repair = of.repair / 3600,
         slow_hours = 0;
  app.option_defaults()->always_capture_default();
  constexpr double most = 1e9;  // thirty years, in seconds
  const auto time = [&](const char* name, double& value, const char* help) {
    app.add_option(name, value, help, number_up_to(most));
  };
  app.add_option("--ranks", of.ranks, "Number of ranks (GPUs) of the job", number_from_to(1, 1e6));
  app.add_option("--ranks-per-replica", of.ranks_per_replica,
                 "Ranks of a replica, which stop when one of them fails", number_from_to(1, 1e6));
  app.add_option("--spares", of.spares, "Idle ranks that replace failed ones", number_up_to(1e6));
  app.add_option("--step-s", of.step, "Time of a step with all ranks, in seconds",
                 number_from_to(0.001, most));
  app.add_option("--failure-hours", hours, "Mean time between two failures of one rank, in hours",
                 positive_number(), number_up_to(most));
  time("--repair-hours", repair, "Time until a failed rank can be used again, in hours");
  time("--save-s", of.save, "Seconds for which a checkpoint stops the steps");
  time("--restart-s", of.restart, "Seconds from a failure to the first step after a restart");
  time("--resize-s", of.resize, "Seconds from a failure to the next step of an elastic job");
  time("--slow-hours", slow_hours, "Mean time until a rank gets slow, in hours; 0: never");
  time("--slow-s", of.slow_for, "Seconds for which a rank stays slow");
  app.add_option("--slow-factor", of.slow_factor,
                 "Factor on the time of all steps while a rank is slow", number_from_to(1, 1e6));
  app.add_option("--days", days, "Simulated time, in days", positive_number(), number_up_to(most));
  app.add_option("--seed", of.seed, "Seed of the random times");
  const auto check = [&] {
    for (const auto* const name : {"--slow-s", "--slow-factor"})
      dhp::check(slow_hours > 0 || app.get_option(name)->count() == 0, name, " needs --slow-hours");
  };
  if (const auto status = app.read(argc, argv, check)) return *status;
  return exit_status_of([&] {
    of.rank_failure = hours * 3600;
    of.duration = days * 86400;
    of.repair = repair * 3600;
    of.slow_every = slow_hours * 3600;
    print_table(of);
    return 0;
  });
}
