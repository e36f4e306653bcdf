// Options of the model: of text models and their running text, of ResNets and their images, and of the trained part
// (frozen parts, adapters, classes of sentences, early stopping).
#pragma once

#include <dhp/core/open_file.hpp>

#include "command_line.hpp"

#include <nlohmann/json.hpp>

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace examples {

/// Help texts that differ by the model.
struct TextModelHelp {
  std::string presets;     ///< names of the presets
  std::string vocabulary;  ///< files that have a vocabulary
  int longest = 0;         ///< longest sample
  std::string columns{};   ///< further uses of --text-column
  std::string task{};      ///< when --test-data applies
};

inline void add_text_model_options(CommandLine& app, TextModelOptions& options,
                                   const TextModelHelp& help) {
  app.option_defaults()->group("Layout");
  app.add_flag("--sequence-parallel", options.sequence_parallel,
               "Split the activations between tensor-parallel layers by rows, which saves memory");
  app.add_option("--context-parallel", options.run.layout.context,
                 "Ranks over which the tokens of each sample are split", positive_number());
  add_name(app, "--context-attention", "ring",
           "With --context-parallel: ring passes keys and values around, heads exchanges tokens "
           "for heads (always on GPUs)",
           [&run = options.run](const auto& name) { run.exchange_heads = name == "heads"; })
      ->check(CLI::IsMember({"ring", "heads"}));
  app.add_option("--context-groups", options.run.store.context_groups,
                 "With --deterministic: pieces in which each sample is computed, a multiple of "
                 "--context-parallel; 0: one per rank",
                 number_up_to(dhp::detail::max_tree_leaves))
      ->group("Training");
  app.option_defaults()->group("Model");
  app.add_option("--preset", options.preset,
                 "Model size: " + help.presets + " (default: that of --load, else tiny)");
  app.add_option("--sequence-length", options.sequence_length, "Longest sample, in tokens",
                 CLI::Range(8, help.longest));
  app.add_option("--dropout", options.dropout, "Dropout probability")->check(number_up_to(0.9));
  app.option_defaults()->group("Data");
  app.add_option("--vocabulary", options.vocabulary,
                 help.vocabulary + "; without it one is trained from the text");
  app.add_option("--vocabulary-size", options.vocabulary_size,
                 "Maximum number of tokens of a trained vocabulary", CLI::Range(16, 200000));
  app.add_option("--text-column", options.text_columns,
                 "Column of .csv, .tsv and .jsonl files with the text" + help.columns)
      ->delimiter(',')
      ->default_str("");
  app.add_option("--test-data", options.test_data,
                 "Evaluation data" + help.task + " (default: held out of --data)");
  app.add_option("--text-cache", options.text_cache,
                 "Directory that keeps the text as tokens, for other processes and later runs");
}

/// Rejects options that conflict with --sequence-parallel, and notes options without effect on an axis of one rank.
inline void check_axes(TextModelOptions& options) {
  for (const auto& [bad, why] :
       {std::pair{options.run.synthetic_gradients.has_value(),
                  "--synthetic-gradients has predictors that each tensor rank would train on its "
                  "own rows"},
        {!options.run.trace_values.empty(),
         "--trace-values looks at whole rows, which no rank has"}})
    dhp::check(!options.sequence_parallel || !bad, why, ": leave out --sequence-parallel");
  for (const auto& [idle, why] :
       {std::pair{options.sequence_parallel && options.run.layout.tensor == 1 &&
                      options.run.axes != "auto",
                  "--sequence-parallel does nothing without --tensor-parallel"},
        {options.run.exchange_heads && options.run.layout.context == 1,
         "--context-attention does nothing without --context-parallel"}})
    if (idle) options.run.idle.push_back(why);
}

inline void add_bert_options(CommandLine& app, BertOptions& options) {
  app.option_defaults()->group("Data");
  app.add_option("--sentences", options.sentences,
                 "Separator of sentences: lines, punctuation, or automatic (decided by the text)",
                 CLI::IsMember({"automatic", "lines", "punctuation"}));
  app.add_option("--layout", options.layout,
                 "packed: samples end to end; padded: each sample fills the full length",
                 CLI::IsMember({"packed", "padded"}));
  app.add_flag("--whole-word-masking", options.whole_word_masking,
               "Mask all pieces of a word together");
  app.add_option("--task", options.task,
                 "pretrain (masked tokens, next sentences) or classify (labeled sentences)",
                 CLI::IsMember({"pretrain", "classify"}));
  app.add_option("--label-column", options.label_column, "Column of labels, for --task classify");
}

inline void add_resnet_options(CommandLine& app, ResNetOptions& options) {
  app.option_defaults()->group("Model");
  app.add_option("--depth", options.depth, "Number of layers: 14, 26, 50, 101 or 152");
  app.add_option("--width", options.width, "Channels of the stem", number_from_to(1, 1e5));
  app.add_option("--image-size", options.image_size,
                 "Pixels per side; 0: the size of the data, 224 for folders and synthetic images",
                 CLI::Range(0, 1024));
  app.add_option("--classes", options.classes,
                 "Number of classes; 0: that of the data, 1000 if synthetic", number_up_to(1e7));
  app.add_option("--stem-stride", options.stem_stride,
                 "Stride of the 3x3 stem, for images up to 64 pixels", CLI::Range(1, 2));
  app.add_flag("--zero-init-gamma", options.zero_init_gamma,
               "Start residual blocks as the identity");
  app.add_flag("--sync-batch-norm", options.sync_batch_norm,
               "Batch norm over the micro-batches of all replicas");
  app.option_defaults()->group("Training");
  app.add_option("--label-smoothing", options.label_smoothing, "Label smoothing; 0: none",
                 number_up_to(0.9));
  app.option_defaults()->group("Data");
  app.add_flag("--augment", options.augment, "Crop and flip training images at random");
  app.add_flag("--exif", options.exif, "Turn images by their EXIF orientation");
  app.add_flag("--skip-bad", options.run.skip_bad,
               "Read all images first, and leave out unreadable ones");
  app.add_option("--test-data", options.test_data, "Evaluation data (default: held out of --data)");
  app.add_option("--normalize", options.normalize,
                 "Normalize by mean and deviation of up to 5000 training images (data) or of "
                 "ImageNet (imagenet)",
                 CLI::IsMember({"data", "imagenet"}));
  app.add_option("--shuffle-window", options.run.shuffle_window,
                 "Window in samples for shuffling blocks of neighboring samples; 0: shuffle all",
                 not_negative_number());
  app.add_option("--first-label", options.first_label,
                 "Label of the first class in shards (default: 1 if that is the smallest, else 0)",
                 not_negative_number());
  app.add_option("--index", options.index, "Folder for the index of shards (default: beside them)");
  app.add_option("--cache", options.cache,
                 "Folder on a fast disk that caches shards of slow storage");
  app.add_option("--cache-gb", options.cache_gb, "Maximum size of --cache, in GB (10^9 bytes)",
                 number_up_to(1e9));
}

/// Sets the options of the model's shape and its images that were not given. If train_resnet50 has exported the model
/// of --load, its values are taken.
inline void take_shape(CommandLine& app, const RunOptions& run) {
  if (!run.loads_only_weights()) return;
  const std::filesystem::path load = run.load;
  const auto path = (is_directory(load) ? load : load.parent_path()) / "config.json";
  if (!exists(path)) return;
  const auto json = nlohmann::json::parse(dhp::text_of(path.string()), nullptr, false);
  if (!json.is_object() || !json.contains("stem_stride")) return;
  for (const auto& [name, key] : {std::pair{"--depth", "depth"},
                                  {"--width", "width"},
                                  {"--image-size", "image_size"},
                                  {"--stem-stride", "stem_stride"},
                                  {"--exif", "exif"}})
    if (auto* const option = app.get_option(name);
        option->count() == 0 && json.value(key, nlohmann::json(false)) != false)
      set(option, {json[key].dump()});
}

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
