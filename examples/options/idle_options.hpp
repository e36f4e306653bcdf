// Finds options that do nothing without others.
#pragma once

#include "../data/model_folder.hpp"
#include "options.hpp"

#include <CLI/CLI.hpp>

#include <cstdint>
#include <filesystem>
#include <string>
#include <tuple>
#include <variant>

namespace examples {

/// Appends a sentence to options.idle for each given option that has no effect.
inline void note_idle(const CLI::App& app, RunOptions& options, const std::string& reducer) {
  const bool has_momentum = std::visit(
      [](const auto& optimizer) {
        return requires { optimizer.momentum; };
      },
      options.optimizer);
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
  const bool has_buckets =
      reducer != "plain" || options.store.sharding.stage != dhp::ZeroStage::none;
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
  const bool takes_words = reads && options.loads_only_weights();  // synthetic text has its own
  const auto has_words = [folder = takes_words ? model_folder(options.load) : ""] {
    using std::filesystem::exists;
    return !folder.empty() && (exists(folder + "/tokenizer.json") || exists(folder + "/vocab.txt"));
  };
  if (given("--vocabulary-size") && (given("--vocabulary") || has_words()))
    options.idle.push_back("--vocabulary-size does nothing beside " +
                           std::string(has_words() ? "the words of --load" : "--vocabulary"));
  constexpr std::int64_t max_words = 512;  // number of words in synthetic text
  if (const auto* const size = given("--vocabulary-size");
      size != nullptr && options.data == "synthetic" && size->as<std::int64_t>() > max_words)
    options.idle.push_back(dhp::concat("--vocabulary-size above ", max_words,
                                       " does nothing without --data PATH or synthetic-resident"));
}

}  // namespace examples
