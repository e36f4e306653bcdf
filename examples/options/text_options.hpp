// Options of the running text that BERT is pre-trained on.
#pragma once

#include "command_line.hpp"

namespace examples {

inline void add_text_options(CommandLine& app, BertOptions& options) {
  app.option_defaults()->group("Data");
  app.add_option("--vocabulary", options.vocabulary, "A vocab.txt; else trained from the text");
  app.add_option("--vocabulary-size", options.vocabulary_size, "Of a vocabulary trained here",
                 CLI::Range(16, 200000));
  app.add_option("--sentences", options.sentences,
                 "What parts them: lines, punctuation, or automatic by the look of the text",
                 CLI::IsMember({"automatic", "lines", "punctuation"}));
  app.add_option("--layout", options.layout,
                 "packed: samples lie end to end; padded: each to the full length",
                 CLI::IsMember({"packed", "padded"}));
  app.add_flag("--whole-word-masking", options.whole_word_masking,
               "Mask all pieces of a word together");
  app.add_option("--text-cache", options.text_cache,
                 "Directory that keeps the text as tokens, for other processes and runs");
}

}  // namespace examples
