// Checks of paths in options, and the text of a file for --config.
#pragma once

#include <dhp/data/known_file.hpp>

#include "command_line.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <sstream>
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
/// commented out.
[[nodiscard]] inline std::string configuration_of(const CLI::App& app) {
  std::istringstream lines(app.config_to_str(true));
  std::string result;
  for (std::string line; std::getline(lines, line);) {
    const auto name = line.substr(0, line.find('='));
    const auto* option = name == line ? nullptr : app.get_option_no_throw("--" + name);
    if (option == nullptr) continue;
    const auto values = CLI::detail::join(option->results());
    auto breaks = std::count(values.begin(), values.end(), '\n');
    result += (option->count() > 0 && breaks == 0 ? "" : "# ") + line +
              (breaks > 0 ? "... is not here, for its line break\n" : "\n");
    while (breaks-- > 0) std::getline(lines, line);
  }
  return result;
}

}  // namespace examples
