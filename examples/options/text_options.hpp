// Options of models of text, and of the running text that they are trained on.
#pragma once

#include "command_line.hpp"

namespace examples {

/// presets: their names; vocabulary: what file has one; longest: sample.
inline void add_text_model_options(CommandLine& app, TextModelOptions& options,
                                   const std::string& presets, const std::string& vocabulary,
                                   int longest) {
  app.option_defaults()->group("Model");
  app.add_option("--preset", options.preset,
                 presets + " (default: as the model of --load, else tiny)");
  app.add_option("--sequence-length", options.sequence_length, "Longest sample, in tokens",
                 CLI::Range(8, longest));
  app.add_option("--dropout", options.dropout, "Probability")->check(number_up_to(0.9));
  app.option_defaults()->group("Data");
  app.add_option("--vocabulary", options.vocabulary, vocabulary + "; else trained from the text");
  app.add_option("--vocabulary-size", options.vocabulary_size, "Of a vocabulary trained here",
                 CLI::Range(16, 200000));
  app.add_option(
         "--text-column", options.text_columns,
         "The column of .csv, .tsv and .jsonl files that has the text; of train_bert's classify "
         "the sentence, or two for pairs: premise,hypothesis")
      ->delimiter(',')
      ->default_str("");
  app.add_option(
      "--test-data", options.test_data,
      "What to evaluate on (of train_bert with --task classify); else held out of --data");
  app.add_option("--text-cache", options.text_cache,
                 "Directory that keeps the text as tokens, for other processes and runs");
}

inline void add_bert_text_options(CommandLine& app, BertOptions& options) {
  app.option_defaults()->group("Data");
  app.add_option("--sentences", options.sentences,
                 "What parts them: lines, punctuation, or automatic by the look of the text",
                 CLI::IsMember({"automatic", "lines", "punctuation"}));
  app.add_option("--layout", options.layout,
                 "packed: samples lie end to end; padded: each to the full length",
                 CLI::IsMember({"packed", "padded"}));
  app.add_flag("--whole-word-masking", options.whole_word_masking,
               "Mask all pieces of a word together");
}

}  // namespace examples
