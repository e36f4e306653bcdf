// Options of text models, and of the running text that they are trained on.
#pragma once

#include "command_line.hpp"

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
               "Between the layers that --tensor-parallel splits, each of its ranks has a share of "
               "the rows, and no other rank's activations");
  app.add_option("--context-parallel", options.run.mesh.context,
                 "Ranks that share the tokens of each sample", positive_number());
  add_name(
      app, "--context-attention", "ring",
      "With --context-parallel: keys travel around a ring, or ranks exchange tokens for heads, "
      "as always on GPUs",
      [&run = options.run](const auto& name) { run.exchange_heads = name == "heads"; })
      ->check(CLI::IsMember({"ring", "heads"}));
  app.add_option("--context-groups", options.run.context_groups,
                 "With --deterministic: the number of pieces that each sample is computed in, "
                 "whatever --context-parallel, which divides it; 0: as many as its ranks",
                 number_up_to(dhp::detail::most_tree_leaves))
      ->group("Training");
  app.option_defaults()->group("Model");
  app.add_option("--preset", options.preset,
                 help.presets + " (default: as the model of --load, else tiny)");
  app.add_option("--sequence-length", options.sequence_length, "Longest sample, in tokens",
                 CLI::Range(8, help.longest));
  app.add_option("--dropout", options.dropout, "Probability")->check(number_up_to(0.9));
  app.option_defaults()->group("Data");
  app.add_option("--vocabulary", options.vocabulary,
                 help.vocabulary + "; else trained from the text");
  app.add_option("--vocabulary-size", options.vocabulary_size, "Of a vocabulary trained here",
                 CLI::Range(16, 200000));
  app.add_option("--text-column", options.text_columns,
                 "The column of .csv, .tsv and .jsonl files that has the text" + help.columns)
      ->delimiter(',')
      ->default_str("");
  app.add_option("--test-data", options.test_data,
                 "What to evaluate on" + help.task + "; else held out of --data");
  app.add_option("--text-cache", options.text_cache,
                 "Directory that keeps the text as tokens, for other processes and runs");
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
       {std::pair{
            options.sequence_parallel && options.run.mesh.tensor == 1 && options.run.axes != "auto",
            "--sequence-parallel does nothing without --tensor-parallel"},
        {options.run.exchange_heads && options.run.mesh.context == 1,
         "--context-attention does nothing without --context-parallel"}})
    if (idle) options.run.idle.push_back(why);
}

inline void add_bert_options(CommandLine& app, BertOptions& options) {
  app.option_defaults()->group("Data");
  app.add_option("--sentences", options.sentences,
                 "What parts them: lines, punctuation, or automatic by the look of the text",
                 CLI::IsMember({"automatic", "lines", "punctuation"}));
  app.add_option("--layout", options.layout,
                 "packed: samples lie end to end; padded: each to the full length",
                 CLI::IsMember({"packed", "padded"}));
  app.add_flag("--whole-word-masking", options.whole_word_masking,
               "Mask all pieces of a word together");
  app.add_option("--task", options.task,
                 "pretrain, or classify: sentences, or pairs of them, by the labels of --data",
                 CLI::IsMember({"pretrain", "classify"}));
  app.add_option("--label-column", options.label_column, "Of classify: the column of the labels");
}

}  // namespace examples
