// Lesson 11: save, kill and continue elsewhere. Four ranks save after every tenth step; one dies in step 26. One rank
// continues from the checkpoint: its model, its optimizer state, its place in the data. The losses equal those of a run
// without a loss of ranks.
#include <dhp/checkpoint.hpp>

#include "toy.hpp"

#include <filesystem>

using toy::Dev;
constexpr int steps = 40, every = 10, dies = 26;

/// Returns a sample of y = sin(3 x0) * x1 at a random place.
dhp::Sample sample(std::int64_t index) {
  const dhp::RandomStream random{.seed = 1};
  const auto at = static_cast<std::uint64_t>(2 * index);
  const auto x0 = static_cast<float>(2 * random.uniform(at) - 1);
  const auto x1 = static_cast<float>(2 * random.uniform(at + 1) - 1);
  return {.input = {x0, x1}, .target = {std::sin(3 * x0) * x1}};
}

/// Trains from the newest checkpoint on. Returns the losses of all steps; 0 for steps before that checkpoint.
std::vector<double> train(dhp::Comm<Dev> world, dhp::MeshShape layout, const std::string& folder,
                          bool is_killed) {
  Dev dev;
  dhp::Loader loader(dev, dhp::FunctionSamples(1000, sample), {.global_batch = 64});
  auto options = toy::options(layout);
  options.store.deterministic = true;  // sums have the same bits on any D and P
  dhp::TrainingRun run(dev, world, options, toy::network, loader);
  run.resume(folder);
  std::vector<double> losses(steps);
  while (run.steps() < steps) {
    const auto report = run.step();
    losses[static_cast<std::size_t>(report.step - 1)] = report.loss;
    if (report.step % every == 0) run.save(folder);
    dhp::check(!is_killed || report.step != dies || world.rank() != 2, "its node has failed");
  }
  return losses;
}

/// Returns the bytes of tensors in the shards of a checkpoint.
std::size_t stored_bytes(const std::string& checkpoint) {
  std::size_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(checkpoint)) {
    if (entry.path().extension() != ".safetensors") continue;
    const dhp::SafeTensors shard(entry.path().string());
    for (const auto& [name, tensor] : shard.tensors()) bytes += shard.read(tensor).size();
  }
  return bytes;
}

int main() try {
  const auto folder =
      std::filesystem::temp_directory_path() / dhp::concat("dhp_lesson_11_", ::getpid());
  const std::string whole = folder / "whole", killed = folder / "killed";
  constexpr dhp::MeshShape one{};
  const auto straight = toy::on_each_rank(1, train, one, whole, false)[0];

  try {
    (void)toy::on_each_rank(4, train, dhp::MeshShape{.data = 2, .pipeline = 2}, killed, true);
  } catch (const dhp::Error& error) {
    std::printf("%s\n", error.sentence().c_str());
  }
  const auto saved = dhp::newest_checkpoint(killed)->first;
  std::printf("the newest checkpoint: %s\n", std::filesystem::path(saved).filename().c_str());
  const auto on_one = toy::on_each_rank(1, train, one, killed, false)[0];

  std::printf("step   never killed  gone on with on one rank\n");
  for (std::size_t step : {0, 19, 20, 29, 39})
    std::printf("%4zu   %.8f    %.8f\n", step + 1, straight[step], on_one[step]);
  // Layers [2, 32], [32, 16], [16, 32], [32, 1] have biases. Each parameter is saved with AdamW's two moments.
  constexpr std::int64_t parameters = 3 * 32 + 33 * 16 + 17 * 32 + 33;
  toy::Ledger ledger("bytes of a checkpoint's tensors");
  ledger.line("  of 4 ranks, 2 of which hold each element", stored_bytes(saved),
              4 * 3 * parameters);
  ledger.line("  of 1 rank", stored_bytes(whole + "/step-00000040"), 4 * 3 * parameters);
  const bool same = std::equal(straight.begin() + 20, straight.end(), on_one.begin() + 20);
  std::filesystem::remove_all(folder);
  return toy::status(same && ledger.agrees());
} catch (const std::exception& error) {  // such as a folder that cannot be written
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
