// dhp_replay computes one step of a saved run again, in any layout. It starts the model's trainer from the newest
// checkpoint before that step, with the options that the checkpoint remembers. With --trace-values, dhp_compare then
// names the first layer whose values differ from those of another layout or machine.
#include <dhp/core/system_error.hpp>
#include <dhp/train/checkpoint_index.hpp>

#include "../data/published_json.hpp"
#include "../options/checked_options.hpp"
#include "../report/progress.hpp"

#include <unistd.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace {

using namespace examples;

/// Finds the newest complete checkpoint before a step.
std::string checkpoint_before(const std::string& folder, std::int64_t step) {
  dhp::check(std::filesystem::is_directory(folder), "--load ", folder, ": there is no such folder");
  const dhp::CheckpointFolder run(folder);
  std::string found;
  std::int64_t best = -1, earliest = -1;
  for (const auto& name : run.names()) {
    const auto saved = dhp::newest_checkpoint(run.path(name));
    if (!saved) continue;
    const auto after = dhp::detail::run_state_of(saved->second.about, saved->first).step;
    if (earliest < 0 || after < earliest) earliest = after;
    if (after < step && after > best) best = after, found = saved->first;
  }
  dhp::check(earliest >= 0, "--load ", folder,
             " has no whole checkpoint; give the folder of --save");
  dhp::check(best >= 0, "--step ", step, ": the first checkpoint in ", folder, " is after step ",
             earliest, "; choose a later step, or save more often");
  return found;
}

/// Returns the program in this program's folder that trains such a model.
std::string trainer_of(const std::string& checkpoint) {
  const auto config =
      PublishedJson::config_of(checkpoint, "so that it is no checkpoint of a trainer");
  const auto kind = config.get("model_type", std::string("a model without a name"));
  const std::map<std::string, std::string> trainers{{"bert", "train_bert"},
                                                    {"gpt2", "train_gpt"},
                                                    {"llama", "train_gpt"},
                                                    {"resnet", "train_resnet50"}};
  const auto found = trainers.find(kind);
  dhp::check(found != trainers.end(), config.path(), ": \"", kind,
             "\" is no model that a trainer here has; it is bert, gpt2, llama or resnet");
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / found->second;
}

[[noreturn]] int replay(const std::string& folder, std::int64_t step,
                        const std::vector<std::string>& more) {
  const auto checkpoint = checkpoint_before(folder, step);
  std::vector<std::string> words{trainer_of(checkpoint), "--load", checkpoint, "--stop-after",
                                 dhp::concat(step)};
  words.insert(words.end(), more.begin(), more.end());
  std::vector<char*> pointers;
  for (auto& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  ::execv(pointers[0], pointers.data());
  dhp::detail::check_system(false, "cannot start ", words[0]);
  std::abort();
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app(
      "Computes a step of a saved run again, on one rank or in another layout. Further options are "
      "the trainer's, such as --trace-values FILE, --metrics FILE or --tensor-parallel 2. Ends "
      "with status 75 where the run had later steps.");
  std::string folder;
  std::int64_t step = 0;
  app.add_option("--load", folder, "Directory of the run's checkpoints")->required();
  app.add_option("--step", step, "Which one, counted from 1")->required()->check(positive_number());
  app.allow_extras();
  if (const auto status = app.read(argc, argv)) return *status;
  return exit_status_of([&] { return replay(folder, step, app.remaining()); });
}
