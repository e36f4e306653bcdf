// Which options all ranks of a job must share, and compare when they connect (agreement.hpp); and which options a
// checkpoint remembers. Ranks share every option that no list here names.
#pragma once

#include <dhp/core/config.hpp>

#include <dhp/core/open_file.hpp>
#include <dhp/train/checkpoint_index.hpp>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace examples {

/// Options that may differ between ranks: where a rank runs, what it prefetches or writes, and how long it waits.
inline constexpr std::array options_of_a_rank{
    "--help",         "--version",     "--config",         "--rank",
    "--world-size",   "--local-rank",  "--master",         "--network-interface",
    "--store",        "--device",      "--threads",        "--loader-threads",
    "--memory-limit", "--index",       "--cache",          "--cache-gb",
    "--text-cache",   "--metrics",     "--tensorboard",    "--flight-record",
    "--peak-tflops",  "--export",      "--export-adapter", "--output",
    "--grace",        "--comm-timeout"};
/// Paths that may differ between hosts. Ranks compare only whether they are given, and later the data that were read.
inline constexpr std::array paths_of_a_host{"--data", "--test-data", "--vocabulary", "--trace",
                                            "--trace-values"};

/// Options of these groups define the training, except for those that say where and how fast it runs.
inline constexpr std::array groups_of_the_run{"Model", "Data", "Training", "Optimizer"};
inline constexpr std::array options_of_how_it_runs{
    "--threads",           "--device",         "--cuda-graphs",
    "--offload",           "--loader-threads", "--comm-timeout",
    "--check-collectives", "--memory-limit",   "--verify-every",
    "--stop-after",        "--index",          "--cache",
    "--cache-gb",          "--text-cache"};

[[nodiscard]] inline bool is_in(const auto& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}
/// Returns the options that a checkpoint remembers.
[[nodiscard]] inline std::vector<CLI::Option*> options_of_the_run(CLI::App& app) {
  return app.get_options([](const CLI::Option* option) {
    return is_in(groups_of_the_run, option->get_group()) &&
           !is_in(options_of_how_it_runs, option->get_name());
  });
}

/// Spells equal numbers alike: 1e-3 becomes 0.001. Whole numbers stay unchanged.
[[nodiscard]] inline std::string one_spelling(const std::string& text) {
  const auto value = dhp::detail::number_of<double>(text);
  return value && text.find_first_of(".eE") != text.npos ? dhp::concat(*value) : text;
}

/// Returns JSON of the version and of all options that ranks share, given or not, as errors word them ("--seed 1").
[[nodiscard]] inline std::string common_options(const CLI::App& app) {
  nlohmann::ordered_json result;
  std::string program;
  try {
    program = dhp::text_of("/proc/self/exe");
  } catch (const dhp::Error&) {  // this system has no /proc
  }
  result["version"] =
      dhp::concat("dhp ", dhp::version_major, ".", dhp::version_minor, ".", dhp::version_patch,
                  " of checksum ", dhp::detail::checked(program).sum);
  for (const auto* option : app.get_options()) {
    const auto name = option->get_name();
    if (is_in(options_of_a_rank, name)) continue;
    auto values = option->count() > 0 ? option->results()
                                      : std::vector<std::string>{option->get_default_str()};
    std::string text;
    for (const auto& value : values) text += (text.empty() ? "" : ",") + one_spelling(value);
    if (is_in(paths_of_a_host, name) && !text.starts_with("synthetic") && !text.empty())
      text = "PATH";
    // Files are compared by their contents.
    if ((text.ends_with(".csv") && name == "--schedule") || (!text.empty() && name == "--cluster"))
      text += dhp::concat(" of checksum ", dhp::detail::checked(dhp::text_of(text)).sum);
    const bool none = text.empty() || text == "false" || text == "[]" || text == "{}";
    result[name] = none ? "no " + name : text == "true" ? name : name + " " + text;
  }
  // Hosts may not share the folder.
  if (const auto* const resume = app.get_option_no_throw("--resume"); resume && resume->count() > 0)
    if (const auto* const load = app.get_option("--load");
        load->count() == 0 || load->results() == resume->results())
      result["--load"] = dhp::concat(load->count() > 0 ? "a" : "no", " checkpoint in --resume ",
                                     resume->results().front());
  // A prompt or a path may have any bytes.
  return result.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace examples
