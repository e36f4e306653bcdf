// Solutions of lesson 11. 1: the newest checkpoint has a wrong byte. 2: the global batch changes after an epoch and a
// half.
#include <dhp/checkpoint.hpp>

#include "toy.hpp"

#include <filesystem>
#include <fstream>

using toy::Dev;

/// Trains from the newest checkpoint to the end of step `last` on one rank. Returns the numbers of the samples with
/// which the steps begin, and with which the next one would.
std::vector<std::int64_t> train(const std::string& folder, std::int64_t global_batch,
                                std::int64_t last) {
  Dev dev;
  const auto sample = [](std::int64_t index) -> dhp::Sample {
    const float x = static_cast<float>(index);
    return {.input = {x / 1000, 1}, .target = {x}};
  };
  dhp::Loader loader(dev, dhp::FunctionSamples(256, sample),
                     {.global_batch = global_batch, .micro_batch = 8});
  dhp::TrainingRun run(dev, {}, toy::options({}), toy::network, loader);
  run.resume(folder);
  std::vector<std::int64_t> firsts;
  const auto note = [&] { firsts.push_back(loader.batching().after(run.steps()).samples); };
  for (note(); run.steps() < last; note()) {
    (void)run.step();
    if (run.steps() % 2 == 0) run.save(folder);
  }
  return firsts;
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
  const auto firsts = train(folder, 32, 12);
  const auto samples = firsts.back();
  std::printf("2: step 7 takes samples %d to %d\n", int(firsts[0]), int(firsts[1]) - 1);
  std::printf("   after 12 steps: %d samples, %.2f epochs\n", int(samples), double(samples) / 256);
  std::filesystem::remove_all(folder);
  return toy::status(passed_over && firsts[0] == 6 * 64 && samples == 6 * 64 + 6 * 32);
} catch (const std::exception& error) {  // such as a folder that cannot be written
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
