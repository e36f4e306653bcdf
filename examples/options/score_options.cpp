#include "command_line.hpp"
#include "common_options.hpp"

#include <functional>

namespace examples {

namespace {

void add_common_options(CommandLine& app, ScoreOptions& options, bool gpu, const std::string& model,
                        const std::string& input, const std::string& what,
                        std::int64_t micro_batch = 16) {
  auto& run = options.run;
  run.global_batch = 16 * micro_batch;
  run.micro_batch = micro_batch;
  app.option_defaults()->always_capture_default();
  add_mesh_options(app, run);
  add_process_options(app, run);
  app.option_defaults()->group("Options");
  app.add_option("--model", run.load, model)->required();
  app.add_option("--input", options.input, input);
  app.add_option("--batch", run.global_batch, what + " per pass, over all replicas",
                 positive_number());
  app.add_option("--micro-batch", run.micro_batch, what + " per micro-batch", positive_number());
  add_precision(app, run);
  add_device_option(app, run, gpu);
}

/// Adds options for programs that write a row per sample.
void add_rows_options(CommandLine& app, ScoreOptions& options) {
  app.get_option("--input")->required();
  app.add_option("--output", options.output,
                 "FILE.csv, FILE.jsonl or FILE.npy; without it JSON lines on standard output");
}
void add_text_options(CommandLine& app, ScoreOptions& options, const std::string& columns) {
  app.add_option("--text-column", options.text_columns,
                 "Column of .csv, .tsv and .jsonl files with the text" + columns)
      ->delimiter(',')
      ->default_str("");
  app.add_option("--adapter", options.run.tuning.adapter,
                 "Folder of an adapter of this model, in PEFT's format");
}

void parse(
    CommandLine& app, int argc, char** argv, Parsed<ScoreOptions>& parsed,
    const std::function<void()>& check = [] {}) {
  auto& run = parsed.options.run;
  parsed.exit_status = app.read(argc, argv, [&] {
    run.check_ranks();
    run.common = common_options(app);
    // A step has only whole micro-batches, but may have fewer samples than asked for.
    run.micro_batch = std::min(run.micro_batch, run.global_batch);
    run.global_batch -= run.global_batch % run.micro_batch;
    check();
  });
}

}  // namespace

Parsed<ScoreOptions> parse_score_bert(int argc, char** argv, bool gpu) {
  Parsed<ScoreOptions> parsed;
  auto& options = parsed.options;
  CommandLine app(
      "Computes embeddings or logits of sentences with a BERT, published or of train_bert.");
  add_common_options(app, options, gpu,
                     "Published folder (config.json, tokenizer.json or vocab.txt, .safetensors), "
                     "or checkpoints of train_bert",
                     "One sentence a line; .csv, .tsv, .jsonl with --text-column", "Sentences");
  add_rows_options(app, options);
  add_text_options(app, options, "; two, NAME,NAME, for pairs of sentences");
  app.add_option("--predict", options.predict,
                 "embeddings, logits, or automatic (logits of classifiers, else embeddings)",
                 CLI::IsMember({"automatic", "embeddings", "logits"}));
  app.add_option("--pooling", options.pooling,
                 "Embedding of a sentence: mean of its tokens, or the first token (default: as in "
                 "the model, else mean)",
                 CLI::IsMember({"mean", "first"}));
  add_choice(app, "--normalize,!--no-normalize", options.normalize,
             "Scale embeddings to length 1 (default: as in the model, else no)");
  app.add_option("--sequence-length", options.sequence_length,
                 "Tokens after which a sentence is cut off; 0: as in the model",
                 not_negative_number());
  parse(app, argc, argv, parsed, [&] {
    dhp::check(options.text_columns.size() < 3, "--text-column: give one column, or two for pairs");
  });
  return parsed;
}

Parsed<ScoreOptions> parse_score_gpt(int argc, char** argv, bool gpu) {
  Parsed<ScoreOptions> parsed;
  auto& options = parsed.options;
  CommandLine app(
      "Scores a text with a causal decoder, or continues prompts. The model is published or of "
      "train_gpt.");
  add_common_options(
      app, options, gpu,
      "Published folder (config.json, tokenizer.json, .safetensors), or checkpoints of train_gpt",
      "Text to score: a file or directory, in the formats of train_gpt", "Sequences",
      1);  // all words' scores of a sequence may take a GB
  add_text_options(app, options, "");
  app.add_option("--sequence-length", options.sequence_length,
                 "Context length in tokens; 0: as in the model", not_negative_number());
  app.add_option(
      "--output", options.output,
      "FILE.csv, FILE.jsonl or FILE.npy for the logits of the first token after each prompt");
  app.add_option("--prompt", options.prompts, "Text to continue; may be given several times")
      ->allow_extra_args(false);
  app.add_option("--tokens", options.tokens, "Maximum number of tokens to generate",
                 positive_number());
  app.add_option("--temperature", options.temperature,
                 "Divisor of the logits before a token is drawn; 0: take the likeliest",
                 number_up_to(1000));
  app.add_option("--top-k", options.top_k, "Number of likeliest tokens to draw from; 0: all",
                 not_negative_number());
  app.add_option("--top-p", options.top_p,
                 "Draw from the likeliest tokens that together have this probability",
                 number_up_to(1));
  app.add_option("--seed", options.run.store.seed, "Seed of the drawn tokens");
  app.add_flag_callback(
      "--no-cache", [&] { options.cache = false; },
      "Recompute all earlier tokens for each new one, for comparison");
  parse(app, argc, argv, parsed, [&] {
    dhp::check(options.input.empty() != options.prompts.empty(),
               "give either --input, a text to score, or --prompt, a text to continue");
    dhp::check(options.text_columns.size() < 2, "--text-column: give one column");
    const auto refuse = [&](const char* name, const char* with) {
      dhp::check(app.get_option(name)->count() == 0, name, " does nothing with ", with);
    };
    if (!options.prompts.empty()) {
      for (const auto* const name : {"--text-column", "--batch"})
        refuse(name, "--prompt: it is for --input");
      for (const auto* const name : {"--top-k", "--top-p", "--seed"})
        if (options.temperature == 0)
          refuse(name, "--temperature 0, which takes the likeliest token; give --temperature 1");
      return;
    }
    for (const auto* const name :
         {"--tokens", "--temperature", "--top-k", "--top-p", "--seed", "--no-cache", "--output"})
      refuse(name, "--input: it is for --prompt");
  });
  return parsed;
}

Parsed<ScoreOptions> parse_score_resnet(int argc, char** argv, bool gpu) {
  Parsed<ScoreOptions> parsed;
  CommandLine app("Computes logits of images with a ResNet of train_resnet50.");
  add_common_options(app, parsed.options, gpu,
                     "Checkpoints of train_resnet50, or a folder that its --export wrote",
                     "PNG or JPEG file, or folder of them; .npy file [N, H, W] or [N, H, W, C] of "
                     "bytes; or IDX file, plain or .gz",
                     "Images");
  add_rows_options(app, parsed.options);
  app.add_flag("--skip-bad", parsed.options.run.skip_bad,
               "Read all files first, and leave out unreadable ones");
  parse(app, argc, argv, parsed);
  return parsed;
}

}  // namespace examples
