// Options of the trained part: frozen parts, adapters, classes of sentences, and early stopping.
#pragma once

#include "command_line.hpp"

#include <map>
#include <string>
#include <vector>

namespace examples {

inline void add_tuning_options(CommandLine& app, RunOptions& options) {
  auto& tuning = options.tuning;
  app.option_defaults()->group("Model");
  app.add_option("--freeze", tuning.freeze,
                 "Parameters not to train: names with * and ?, separated by commas, such as *.bias")
      ->delimiter(',')
      ->default_str("");
  app.add_option("--lora", tuning.adapters.layers,
                 "Linear layers that get low-rank adapters, by the ends of their names, such as "
                 "query,value; besides, only the head is trained")
      ->delimiter(',')
      ->default_str("");
  app.add_option("--lora-rank", tuning.adapters.rank, "Rank of the adapters", positive_number());
  app.add_option("--lora-alpha", tuning.adapters.alpha,
                 "Factor on the adapters' output, divided by their rank", positive_number());
  app.add_option("--lora-dropout", tuning.adapters.dropout,
                 "Dropout probability of the adapters' input", number_up_to(0.9));
  app.option_defaults()->group("Output");
  app.add_option("--adapter", tuning.adapter,
                 "Folder of an adapter in PEFT's format to begin with, instead of --lora");
  app.add_option("--export-adapter", tuning.export_adapter,
                 "Directory for the trained adapter alone, in PEFT's format");
  app.option_defaults()->group("Training");
  app.add_option("--stop-early", options.stop_early,
                 "Evaluation measure, such as masked_loss: end when it stops improving");
  app.add_option("--patience", options.patience,
                 "With --stop-early: evaluations in a row without improvement", positive_number());
}

/// Sets the adapter options from the folder of --adapter. Throws if one of them is also given.
inline void take_adapter(CommandLine& app, const RunOptions& options) {
  if (options.tuning.adapter.empty()) return;
  const auto adapters = read_adapter_config(options.tuning.adapter);
  for (const auto& [name, values] : std::map<std::string, std::vector<std::string>>{
           {"--lora", adapters.layers},
           {"--lora-rank", {dhp::concat(adapters.rank)}},
           {"--lora-alpha", {dhp::concat(adapters.alpha)}},
           {"--lora-dropout", {dhp::concat(adapters.dropout)}}}) {
    auto* const option = app.get_option(name);
    dhp::check(option->count() == 0, name, ": --adapter ", options.tuning.adapter,
               " says this already; leave one of the two out");
    set(option, values);
  }
}

/// Throws for errors that are known without data.
inline void check_tuning(const RunOptions& options) {
  const auto& tuning = options.tuning;
  dhp::check(tuning.adapter.empty() || options.begins_anew(),
             "--adapter is for --load FILE.safetensors or a published folder; a checkpoint has its "
             "own adapters");
  dhp::check(tuning.export_adapter.empty() || !tuning.adapters.layers.empty(),
             "--export-adapter needs adapters: choose their layers by --lora");
  dhp::check(tuning.export_adapter.empty() || !options.save.empty(),
             "--export-adapter takes the adapter of the last checkpoint: it needs --save DIR, too");
  if (options.stop_early.empty()) return;
  dhp::check(options.evaluate_every > 0, "--stop-early ", options.stop_early,
             " needs evaluations during the run: give --evaluate-every");
  dhp::check(
      !options.elastic,
      "--stop-early does not work with --elastic: new ranks do not know the earlier evaluations");
}

inline void check_classification(const CLI::App& app, const BertOptions& options) {
  const auto given = [&](const char* name) { return app.get_option(name)->count() > 0; };
  const bool classifies = options.task == "classify";
  for (const auto* const name : {"--label-column", "--test-data"})
    dhp::check(classifies || !given(name), name, " is for --task classify");
  dhp::check(classifies || options.text_columns.size() < 2,
             "--text-column: two columns are for --task classify");
  if (!classifies) return;
  for (const auto* const name : {"--sentences", "--layout", "--whole-word-masking", "--text-cache"})
    dhp::check(!given(name), name, " is for --task pretrain, whose data are running text");
  dhp::check(!options.run.synthetic(), "--task classify needs --data FILE.csv, .tsv or .jsonl");
  dhp::check(options.text_columns.size() == 1 || options.text_columns.size() == 2,
             "--task classify needs --text-column NAME, or two names for pairs of sentences; got ",
             options.text_columns.size());
  dhp::check(!options.label_column.empty(), "--task classify needs --label-column NAME");
}

}  // namespace examples
