// dhp_replay computes one step of a saved run again, in any layout. It starts the model's trainer from the newest
// checkpoint before that step. The options are those of the next checkpoint, with which the step was computed. If both
// runs have --trace-values, dhp_compare then names the first layer whose values differ.
#include <dhp/core/system_error.hpp>
#include <dhp/train/checkpoint_index.hpp>

#include "../data/published_json.hpp"
#include "../options/checked_options.hpp"
#include "../report/progress.hpp"

#include <unistd.h>

#include <filesystem>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace examples;

/// The newest complete checkpoint before a step with its options, and the options of the oldest one after the step, or
/// null if there is none.
struct Around {
  std::string before;
  nlohmann::ordered_json options_before, options_after;
};

Around checkpoints_around(const std::string& folder, std::int64_t step) {
  dhp::check(std::filesystem::is_directory(folder), "--load ", folder, ": there is no such folder");
  const dhp::CheckpointFolder run(folder);
  using Saved = std::pair<std::string, nlohmann::ordered_json>;  // path and options
  std::map<std::int64_t, Saved> by_step;
  for (const auto& name : run.names())
    if (const auto saved = dhp::newest_checkpoint(run.path(name))) {
      const auto& [path, index] = *saved;
      const auto none = nlohmann::ordered_json::object();
      by_step.try_emplace(dhp::detail::run_state_of(index.about, path).step, path,
                          index.about.value("run", none).value("options", none));
    }
  dhp::check(!by_step.empty(), "--load ", folder,
             " has no whole checkpoint; give the folder of --save");
  const auto after = by_step.lower_bound(step);
  dhp::check(after != by_step.begin(), "--step ", step, ": the first checkpoint in ", folder,
             " is after step ", by_step.begin()->first,
             "; choose a later step, or save more often");
  const auto& [path, options] = std::prev(after)->second;
  return {path, options, after == by_step.end() ? nlohmann::ordered_json() : after->second.second};
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
             "\" has no trainer; bert, gpt2, llama and resnet have one");
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / found->second;
}

/// Returns the words after an option, as in `--name VALUE` or `--name=VALUE`.
std::vector<std::string> given_values(const std::vector<std::string>& words,
                                      const std::string& name) {
  std::vector<std::string> values;
  for (std::size_t at = 0; at < words.size(); ++at)
    if (words[at].starts_with(name + "=")) values.push_back(words[at].substr(name.size() + 1));
    else if (words[at] == name) values.push_back(at + 1 < words.size() ? words[at + 1] : "");
  return values;
}

/// Returns the options that changed between the two checkpoints, without those that `more` gives.
std::vector<std::string> changes(const Around& around, std::int64_t step,
                                 const std::vector<std::string>& more) {
  const auto given = [&](const std::string& name) { return !given_values(more, name).empty(); };
  const bool other_length = given("--steps") || given("--epochs");
  const auto& before = around.options_before;
  if (around.options_after.is_null() && before.contains("--steps") && !other_length) {
    const auto steps = before["--steps"].back().get<std::string>();
    dhp::check(step <= std::stoll(steps), "--step ", step, ": the run ends after step ", steps,
               "; choose an earlier step, or give more --steps");
  }
  std::vector<std::string> words;
  for (const auto& [name, values] : around.options_after.items()) {
    const bool length = name == "--steps" || name == "--epochs";
    if (values == before.value(name, nlohmann::ordered_json()) || given(name) ||
        (length && other_length))
      continue;
    std::string word = name;
    for (const auto& value : values) word += (word == name ? "=" : ",") + value.get<std::string>();
    words.push_back(std::move(word));
  }
  return words;
}

/// Throws if `more` names a file or folder that exists: the trainer would remove the steps after the replayed one.
void check_keeps_run(const std::vector<std::string>& more) {
  for (const auto* const name : {"--save", "--resume", "--metrics"})
    for (const auto& path : given_values(more, name)) {
      std::error_code none;
      dhp::check(!std::filesystem::exists(path, none) || std::filesystem::is_empty(path, none),
                 name, " ", path,
                 " exists, and would lose the steps after the replayed one: give a new name");
    }
}

[[noreturn]] int replay(const std::string& folder, std::int64_t step,
                        const std::vector<std::string>& more) {
  check_keeps_run(more);
  const auto around = checkpoints_around(folder, step);
  std::vector<std::string> words{trainer_of(around.before), "--load", around.before, "--stop-after",
                                 dhp::concat(step)};
  for (const auto& part : {changes(around, step, more), more})
    words.insert(words.end(), part.begin(), part.end());
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
      "Computes a step of a saved run again, on one rank unless axes are given. Further options go "
      "to the trainer, such as --trace-values FILE, --metrics FILE or --tensor-parallel 2. Ends "
      "with status 75 if the run had later steps.");
  std::string folder;
  std::int64_t step = 0;
  app.add_option("--load", folder, "Directory of the run's checkpoints")->required();
  app.add_option("--step", step, "Step to compute again, counted from 1")
      ->required()
      ->check(positive_number());
  app.allow_extras();
  if (const auto status = app.read(argc, argv)) return *status;
  return exit_status_of([&] { return replay(folder, step, app.remaining()); });
}
