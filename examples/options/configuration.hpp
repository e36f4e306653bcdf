// Examples for the trainers' --help, checks of paths in options, the text of a file for --config, and options that do
// nothing without others.
#pragma once

#include <dhp/data/known_file.hpp>

#include "../data/model_folder.hpp"
#include "command_line.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace examples {

inline constexpr const char* bert_examples =
    "Examples:\n"
    "  train_bert --data text/ --preset mini --epochs 3 --save run --save-every 500\n"
    "  train_bert --load run --save run                      goes on where it stopped\n"
    "  train_bert --data-parallel 2 --tensor-parallel 2 --pipeline-parallel 2 --steps 20\n"
    "  train_bert --config run/step-00000500/options.toml --save other --lr 0.0005\n";
inline constexpr const char* gpt_examples =
    "Examples:\n"
    "  train_gpt --data text/ --preset mini --epochs 3 --save run --export model\n"
    "  train_gpt --load run --save run                       goes on where it stopped\n"
    "  train_gpt --preset llama-tiny --tensor-parallel 2 --steps 20\n"
    "  train_gpt --load gpt2 --data text/ --lora c_attn.query,c_attn.value --lr 0.0003\n";
inline constexpr const char* resnet_examples =
    "Examples:\n"
    "  train_resnet50 --data images/ --augment --epochs 90 --save run --save-every 500\n"
    "  train_resnet50 --load run --save run                  goes on where it stopped\n"
    "  train_resnet50 --data-parallel 4 --zero 1 --image-size 32 --steps 20\n"
    "  train_resnet50 --load weights.safetensors --new-head --data other/ --lr 0.01\n";

/// Throws if the name shows that --load cannot read the file.
inline void check_load(const std::string& path) {
  if (std::filesystem::is_directory(path)) return;
  for (const auto* ending : {".pth", ".pt", ".bin", ".ckpt", ".h5", ".onnx", ".msgpack"})
    dhp::check(!dhp::detail::ends_in(path, ending), "--load ", path, ": dhp reads no ", ending,
               " files, only its own checkpoints and .safetensors; in Python, "
               "safetensors.torch.save_file(weights, \"weights.safetensors\") writes one");
}

/// Throws if the directory of --export or a similar option is a file.
inline void check_directory(const char* option, const std::string& path) {
  dhp::check(!std::filesystem::exists(path) || std::filesystem::is_directory(path), option, " ",
             path, " is a file; give a directory");
}

/// Throws if two options name the same file: one result would replace the other.
inline void check_outputs(const std::vector<std::pair<const char*, std::string>>& outputs) {
  std::map<std::filesystem::path, const char*> known;
  for (const auto& [option, path] : outputs) {
    const bool stream = std::filesystem::exists(path) && !std::filesystem::is_regular_file(path);
    if (path.empty() || stream) continue;
    const auto [other, fresh] =
        known.emplace(std::filesystem::weakly_canonical(std::filesystem::absolute(path)), option);
    dhp::check(fresh, other->second, " and ", option, " are one file, ", path,
               "; give each a file of its own");
  }
}

/// Returns all options in the format of --config. Options that were not given, or whose value has a line break, are
/// commented out.
[[nodiscard]] inline std::string configuration_of(const CLI::App& app) {
  std::istringstream lines(app.config_to_str(true));
  std::string made;
  for (std::string line; std::getline(lines, line);) {
    const auto name = line.substr(0, line.find('='));
    const auto* option = name == line ? nullptr : app.get_option_no_throw("--" + name);
    if (option == nullptr) continue;
    const auto values = CLI::detail::join(option->results());
    auto breaks = std::count(values.begin(), values.end(), '\n');
    made += (option->count() > 0 && breaks == 0 ? "" : "# ") + line +
            (breaks > 0 ? "... is not here, for its line break\n" : "\n");
    while (breaks-- > 0) std::getline(lines, line);
  }
  return made;
}

/// Appends a sentence to options.idle for each given option that has no effect.
inline void note_idle(const CLI::App& app, RunOptions& options, const std::string& optimizer,
                      const std::string& reducer) {
  const bool has_momentum = optimizer == "sgd" || optimizer == "lars";
  const bool plans = options.axes == "auto" || options.elastic_axes;
  const bool adapts = !options.tuning.adapters.layers.empty();
  const bool reads = !options.synthetic();
  const auto given = [&](const std::string& name) {
    const auto* const option = app.get_option_no_throw(name);
    return option != nullptr && option->count() > 0 ? option : nullptr;
  };
  const bool are_processes =
      (given("--transport") || given("--network-interface")) && options.process();
  const bool reads_images = reads && app.get_option_no_throw("--image-size") != nullptr;
  const bool evaluates = options.held_out > 0 || given("--test-data") != nullptr || reads_images;
  const bool has_buckets = reducer != "plain" || options.sharding.stage != dhp::ZeroStage::none;
  for (const auto& [name, used, without] :
       {std::tuple{"--momentum", has_momentum, "--optimizer sgd or lars"},
        {"--patience", !options.stop_early.empty(), "--stop-early"},
        {"--transport", are_processes, "ranks that are processes"},
        {"--network-interface", are_processes, "ranks that are processes"},
        {"--cluster", plans, "--axes auto or --elastic-axes all"},
        {"--evaluate-every", evaluates, "--held-out"},
        {"--evaluate-samples", evaluates, "--held-out"},
        {"--bucket-mb", has_buckets, "--reducer bucketed or --zero"},
        {"--lora-rank", adapts, "--lora"},
        {"--lora-alpha", adapts, "--lora"},
        {"--lora-dropout", adapts, "--lora"},
        {"--text-column", reads, "--data PATH"},
        {"--text-cache", reads, "--data PATH"},
        {"--sentences", reads, "--data PATH"},
        {"--exif", reads, "--data PATH"},
        {"--skip-bad", reads, "--data PATH"},
        {"--cache-gb", given("--cache") != nullptr, "--cache"}})
    if (given(name) && !used)
      options.idle.push_back(dhp::concat(name, " does nothing without ", without));
  const auto has_words = [folder = options.begins_anew() ? model_folder(options.load) : ""] {
    using std::filesystem::exists;
    return !folder.empty() && (exists(folder + "/tokenizer.json") || exists(folder + "/vocab.txt"));
  };
  if (given("--vocabulary-size") && (given("--vocabulary") || has_words()))
    options.idle.push_back("--vocabulary-size does nothing beside " +
                           std::string(has_words() ? "the words of --load" : "--vocabulary"));
  constexpr std::int64_t most_words = 512;  // number of words in synthetic text
  if (const auto* const size = given("--vocabulary-size");
      size != nullptr && options.data == "synthetic" && size->as<std::int64_t>() > most_words)
    options.idle.push_back(dhp::concat("--vocabulary-size above ", most_words,
                                       " does nothing without --data PATH or synthetic-resident"));
}

}  // namespace examples
