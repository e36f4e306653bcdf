// Measures how long training waits for a checkpoint: a background save against a blocking one, in turns, of the same
// bytes to the same disk with fsync. Two ranks are threads; the model is BERT-base with AdamW: 1.3 GB.
#include <bench/program.hpp>
#include <bench/workloads.hpp>
#include <dhp/comm/launch.hpp>
#include <dhp/train/run_files.hpp>
#include <dhp/train/training_run.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>

namespace {

using bench::Dev;

/// Wall-clock seconds, and CPU seconds of all threads of this process.
struct Time {
  double wall_s = 0;
  double cpu_s = 0;
};

[[nodiscard]] Time now() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return {std::chrono::duration<double>(since).count(), bench::cpu_now(CLOCK_PROCESS_CPUTIME_ID)};
}

template <class Body>
[[nodiscard]] Time time_of(dhp::Comm<Dev>& world, const Body& body) {
  world.barrier();
  const auto begin = now();
  body();
  world.barrier();
  const auto end = now();
  return {end.wall_s - begin.wall_s, end.cpu_s - begin.cpu_s};
}

/// Times of one round.
struct Found {
  Time steps;            ///< steps without a save
  Time steps_with_save;  ///< steps with a background save, and its rest
  double stalled_s = 0;  ///< time that training waited for the background save
  double rest_s = 0;     ///< time from the last step to the end of the save
  Time blocking;         ///< times of a save that training waits for
};

std::vector<Found> measure(dhp::Comm<Dev> world, const std::string& folder, int rounds, int steps) {
  auto workload = bench::workload("bert-base");
  workload.samples = 4;
  workload.bert.vocabulary = 30522;
  Dev dev;
  const auto batch = [&](std::int64_t index) {
    auto result = bench::micro_batch(dev, workload);
    result.index = index;
    return result;
  };
  dhp::TrainingRun<Dev> run(
      dev, world, {.layout = {.data = world.size()}, .trainer = {.clip = bench::clip}},
      [&](dhp::ModelBuilder<Dev>& build) { return bench::model(build, workload); }, batch(0));
  std::vector<dhp::MicroBatch<Dev>> all;
  for (int replica = 0; replica < world.size(); ++replica) all.push_back(batch(replica));

  auto& files = run.files();
  const auto train = [&] {
    for (int step = 0; step < steps; ++step) (void)run.step(all);
  };
  const auto path = [&](const char* name) { return folder + "/" + name; };

  std::vector<Found> rows;
  for (int round = -1; round < rounds; ++round) {  // round -1 is a warm-up
    Found found;
    found.steps = time_of(world, train);
    const double stalled_s = files.stalled_s();
    found.steps_with_save = time_of(world, [&] {
      files.save_in_background(path("background"), {.keep = 1});
      train();
      found.stalled_s = files.stalled_s() - stalled_s;
      const auto begin = now();
      files.wait();
      found.rest_s = now().wall_s - begin.wall_s;
    });
    found.blocking = time_of(world, [&] { files.save(path("blocking"), {.keep = 1}); });
    if (round >= 0) rows.push_back(found);
  }
  return rows;
}

void report(const std::vector<Found>& rows, const char* json) {
  nlohmann::ordered_json lines = nlohmann::ordered_json::array();
  std::printf("%9s %9s %9s %9s %9s %9s %9s\n", "steps s", "with save", "stall s", "rest s", "CPU s",
              "blocking", "CPU s");
  for (const auto& row : rows) {
    const double cpu_s = row.steps_with_save.cpu_s - row.steps.cpu_s;
    std::printf("%9.2f %9.2f %9.4f %9.2f %9.2f %9.2f %9.2f\n", row.steps.wall_s,
                row.steps_with_save.wall_s, row.stalled_s, row.rest_s, cpu_s, row.blocking.wall_s,
                row.blocking.cpu_s);
    lines.push_back({{"steps_s", row.steps.wall_s},
                     {"steps_with_save_s", row.steps_with_save.wall_s},
                     {"stalled_s", row.stalled_s},
                     {"rest_s", row.rest_s},
                     {"background_cpu_s", cpu_s},
                     {"blocking_s", row.blocking.wall_s},
                     {"blocking_cpu_s", row.blocking.cpu_s}});
  }
  std::vector<double> ratios;
  for (const auto& row : rows) ratios.push_back(row.blocking.wall_s / row.stalled_s);
  std::printf("blocking / stall %.1f\n", bench::median(ratios));
  if (json != nullptr) std::ofstream(json) << lines.dump(1) << "\n";
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 3;
  const int steps = argc > 3 ? std::atoi(argv[3]) : 3;
  return bench::run_main(argc > 1, "bench_checkpoint FOLDER [ROUNDS] [STEPS] [JSON]", [&] {
    dhp::run_ranks<Dev>(2, [&](dhp::Comm<Dev> world) {
      const bool speaks = world.rank() == 0;
      const auto rows = measure(std::move(world), argv[1], rounds, steps);
      if (speaks) report(rows, argc > 4 ? argv[4] : nullptr);
    });
  });
}
