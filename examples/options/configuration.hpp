// Checks of paths in options, and the text of a file for --config.
#pragma once

#include <dhp/data/known_file.hpp>

#include "command_line.hpp"

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace examples {

/// Throws if the name shows that --load cannot read the file.
inline void check_load(const std::string& path) {
  if (std::filesystem::is_directory(path)) return;
  for (const auto* ending : {".pth", ".pt", ".bin", ".ckpt", ".h5", ".onnx", ".msgpack"})
    dhp::check(!dhp::detail::ends_in(path, ending), "--load ", path, ": dhp reads no ", ending,
               " files, only its own checkpoints and .safetensors; in Python, "
               "safetensors.torch.save_file(weights, \"weights.safetensors\") writes one");
}

/// Throws if the directory of --export or a similar option is a file, or if its results would replace the weights that
/// option `from` reads.
inline void check_directory(const char* option, const std::string& path, const char* from,
                            const std::string& source) {
  namespace fs = std::filesystem;
  std::error_code error;
  dhp::check(!fs::exists(path) || fs::is_directory(path), option, " ", path,
             " is a file; give a directory");
  const auto replaced = fs::is_directory(source, error) ? path : path + "/model.safetensors";
  dhp::check(!fs::equivalent(source, replaced, error), option, " ", path,
             " would replace the weights that ", from, " ", source,
             " reads; give another directory");
}

/// Throws if two options name the same file: one result would replace the other.
inline void check_outputs(const std::vector<std::pair<const char*, std::string>>& outputs) {
  std::map<std::filesystem::path, const char*> known;
  for (const auto& [option, path] : outputs) {
    const bool stream = std::filesystem::exists(path) && !std::filesystem::is_regular_file(path);
    if (path.empty() || stream) continue;
    const auto [other, fresh] =
        known.emplace(std::filesystem::weakly_canonical(std::filesystem::absolute(path)), option);
    dhp::check(fresh, other->second, " and ", option, " are one file, ", path,
               "; give each a file of its own");
  }
}

/// Returns all options in the format of --config. Options that were not given, or whose value has a line break, are
/// commented out. CLI11's own config_to_str() throws where a default, such as 0 for "none", fails a value's checks.
[[nodiscard]] inline std::string configuration_of(const CLI::App& app) {
  std::string result;
  for (const auto* option : app.get_options()) {
    if (!option->get_configurable()) continue;
    const auto name = option->get_single_name();
    const auto values = option->reduced_results();
    const bool flag = option->get_expected_min() == 0;
    const auto usual = flag ? option->get_flag_value(name, "false") : option->get_default_str();
    auto line =
        dhp::concat(name, "=", CLI::detail::ini_join(values.empty() ? std::vector{usual} : values));
    const auto end = line.find('\n');
    if (end != line.npos) line.replace(end, line.npos, "... is not here, for its line break");
    result += (values.empty() || end != line.npos ? "# " : "") + line + "\n";
  }
  return result;
}

}  // namespace examples
