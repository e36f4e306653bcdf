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
               "Split the activations between tensor-parallel layers by rows, which saves memory");
  app.add_option("--context-parallel", options.run.mesh.context,
                 "Ranks over which the tokens of each sample are split", positive_number());
  add_name(app, "--context-attention", "ring",
           "With --context-parallel: ring passes keys and values around, heads exchanges tokens "
           "for heads (always on GPUs)",
           [&run = options.run](const auto& name) { run.exchange_heads = name == "heads"; })
      ->check(CLI::IsMember({"ring", "heads"}));
  app.add_option("--context-groups", options.run.context_groups,
                 "With --deterministic: pieces in which each sample is computed, a multiple of "
                 "--context-parallel; 0: one per rank",
                 number_up_to(dhp::detail::most_tree_leaves))
      ->group("Training");
  app.option_defaults()->group("Model");
  app.add_option("--preset", options.preset,
                 help.presets + " (default: that of --load, else tiny)");
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

}  // namespace examples
