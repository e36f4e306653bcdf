// Around a trainer's options: files of them, examples, what a mistyped one was to be, and what the summary is given.
#pragma once

#include <dhp/data/known_file.hpp>

#include "command_line.hpp"

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

namespace examples {

inline void add_summary_options(CLI::App& app, RunOptions& options) {
  app.add_option(
         "--histograms", options.histograms,
         "With --tensorboard: steps between histograms of each parameter's gradient; 0: none")
      ->check(not_negative_number())
      ->group("Output");
  app.add_option("--peak-tflops", options.peak_tflops,
                 "What a rank can do at most, in 10^12 multiplications and additions a second: the "
                 "summary tells how much of it was used")
      ->check(not_negative_number())
      ->group("Output");
  app.add_option("--price", options.price,
                 "Of a rank and hour, in any currency: the summary tells what the run has cost")
      ->check(not_negative_number())
      ->group("Output");
}

inline constexpr const char* bert_examples =
    "Examples:\n"
    "  train_bert --data text/ --preset mini --epochs 3 --save run --save-every 500\n"
    "  train_bert --load run --save run                      goes on where it stopped\n"
    "  train_bert --data-parallel 2 --tensor-parallel 2 --pipeline-parallel 2 --steps 20\n"
    "  train_bert --config run/step-00000500/options.toml --save other --lr 0.0005\n";
inline constexpr const char* resnet_examples =
    "Examples:\n"
    "  train_resnet50 --data images/ --augment --epochs 90 --save run --save-every 500\n"
    "  train_resnet50 --load run --save run                  goes on where it stopped\n"
    "  train_resnet50 --data-parallel 4 --zero 1 --image-size 32 --steps 20\n"
    "  train_resnet50 --load weights.safetensors --new-head --data other/ --lr 0.01\n";

inline void add_configuration_file(CLI::App& app) {
  app.set_config("--config", "",
                 "TOML file of options without their dashes; those of the command line come first")
      ->check(CLI::ExistingFile)
      ->group("Output");
  app.allow_config_extras(CLI::config_extras_mode::error);
}

/// Letters to put in, leave out, exchange with the next or write otherwise (Damerau 1964).
[[nodiscard]] inline std::size_t typing_mistakes(const std::string& a, const std::string& b) {
  std::vector<std::vector<std::size_t>> least(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i)
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        least[i][j] = i + j;
        continue;
      }
      least[i][j] = std::min({least[i - 1][j] + 1, least[i][j - 1] + 1,
                              least[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        least[i][j] = std::min(least[i][j], least[i - 2][j - 2] + 1);
    }
  return least[a.size()][b.size()];
}

/// The option that is most like this one; empty where none is.
[[nodiscard]] inline std::string option_like(const CLI::App& app, std::string typed) {
  typed = typed.substr(0, typed.find('='));
  typed.erase(0, typed.find_first_not_of('-'));
  std::string nearest;
  if (typed.size() < 2) return nearest;
  auto least = std::max<std::size_t>(1, typed.size() / 4) + 1;
  for (const auto* option : app.get_options())
    for (const auto& name : option->get_lnames()) {
      const bool begins = name.starts_with(typed) || typed.starts_with(name + "-");
      const auto mistakes = begins ? 1 : typing_mistakes(typed, name);
      if (mistakes < least) {
        least = mistakes;
        nearest = "--" + name;
      }
    }
  return nearest;
}
/// Behind the message of an option that there is not.
[[nodiscard]] inline std::string did_you_mean(const CLI::App& app, const CLI::Error& error) {
  if (error.get_exit_code() != static_cast<int>(CLI::ExitCodes::ExtrasError) &&
      error.get_exit_code() != static_cast<int>(CLI::ExitCodes::ConfigError))
    return "";
  for (const auto& word : app.remaining())
    if (const auto like = option_like(app, word); !like.empty())
      return "; did you mean " + like + "?";
  return "";
}

/// Throws where it is clear from the name that --load cannot read it.
inline void check_load(const std::string& path) {
  for (const auto* ending : {".pth", ".pt", ".bin", ".ckpt", ".h5", ".onnx", ".msgpack"})
    dhp::check(!dhp::ends_in(path, ending), "--load ", path, ": dhp reads no ", ending,
               " files, only its own checkpoints and .safetensors; in Python, "
               "safetensors.torch.save_file(weights, \"weights.safetensors\") writes one");
}

/// All options as --config takes them; those that were not given are comments.
[[nodiscard]] inline std::string configuration_of(const CLI::App& app) {
  std::istringstream lines(app.config_to_str(true));
  std::string made;
  for (std::string line; std::getline(lines, line);) {
    const auto name = line.substr(0, line.find('='));
    const auto* option = name == line ? nullptr : app.get_option_no_throw("--" + name);
    if (option != nullptr) made += (option->count() > 0 ? "" : "# ") + line + "\n";
  }
  return made;
}

}  // namespace examples
