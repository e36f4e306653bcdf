// Solutions of lesson 11. 1: the newest checkpoint has a wrong byte. 2: the global batch changes after an epoch and a
// half.
#include <dhp/checkpoint.hpp>

#include "toy.hpp"

#include <filesystem>
#include <fstream>

using toy::Dev;

/// Trains from the newest checkpoint to the end of step `last` on one rank. Returns the number of samples of each step.
std::vector<double> train(const std::string& folder, std::int64_t global_batch, std::int64_t last) {
  Dev dev;
  const auto sample = [](std::int64_t index) -> dhp::Sample {
    const float x = static_cast<float>(index);
    return {.input = {x / 1000, 1}, .target = {x}};
  };
  dhp::Loader loader(dev, dhp::FunctionSamples(256, sample),
                     {.global_batch = global_batch, .micro_batch = 8});
  dhp::TrainingRun run(dev, {}, toy::options({}), toy::network, loader);
  run.resume(folder);
  std::vector<double> taken;
  while (run.steps() < last) {
    const auto position = loader.batching().after(run.steps()).samples;
    (void)run.step();
    if (run.steps() % 2 == 0) run.save(folder);
    taken.push_back(static_cast<double>(loader.batching().after(run.steps()).samples - position));
  }
  return taken;
}

int main() try {
  const std::string folder =
      std::filesystem::temp_directory_path() / dhp::concat("dhp_solution_11_", ::getpid());
  (void)train(folder, 64, 6);
  {
    std::fstream shard(folder + "/step-00000006/shard-00000.safetensors",
                       std::ios::in | std::ios::out);
    shard.seekp(-1, std::ios::end);
    shard.put('\x55');
  }
  Dev dev;
  const auto batches = toy::batches(dev, 1);
  dhp::TrainingRun run(dev, {}, toy::options({}), toy::network, batches.front());
  const auto loaded = run.files().load(folder);
  std::printf("1: it goes on after step %d\n   %s\n", static_cast<int>(loaded.state.step),
              loaded.remarks.empty() ? "" : "a damaged checkpoint was passed over");
  const bool passed_over = loaded.state.step == 4;

  // Six steps of 64 are an epoch and a half. Steps of 32 then begin in the middle of an epoch.
  (void)train(folder, 64, 6);
  const auto taken = train(folder, 32, 12);
  double samples = 6 * 64;
  for (const double of_step : taken) samples += of_step;
  std::printf("2: after 12 steps %.0f samples, %.1f epochs\n", samples, samples / 256);
  std::filesystem::remove_all(folder);
  return toy::status(passed_over && samples == 6 * 64 + 6 * 32);
} catch (const std::exception& error) {  // such as a folder that cannot be written
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
