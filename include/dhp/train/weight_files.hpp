// WeightFiles: the tensors of a published model, in one .safetensors file or in several with an index. Needs
// nlohmann/json.
#pragma once

#include <dhp/train/checkpoint_folder.hpp>
#include <dhp/train/safetensors.hpp>

#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace dhp {

class WeightFiles {
 public:
  static constexpr const char* index_name = "model.safetensors.index.json";

  /// Returns whether `path` names weights: a .safetensors file, or a published model's folder with model.safetensors or
  /// an index. False for checkpoints and folders of checkpoints.
  [[nodiscard]] static bool are_at(const std::string& path) {
    if (is_file(path)) return true;
    const auto has = [&](const std::string& name) { return detail::is_there(path + "/" + name); };
    if (path.empty() || has("index.json") || has("state.json")) return false;
    return (has(index_name) || has("model.safetensors")) && CheckpointFolder(path).names().empty();
  }

  /// Opens all files. Throws Error if a file is missing or damaged, or if the index names a tensor that does not exist.
  explicit WeightFiles(const std::string& path) : path_(path) {
    const auto whole = path + "/model.safetensors";
    const bool in_parts = std::filesystem::exists(path + "/" + index_name);
    if (is_file(path)) open(path);
    else if (in_parts && !std::filesystem::exists(whole)) open_all(path);
    else open(whole);
  }

  /// Maps each tensor's name to its file.
  [[nodiscard]] const std::map<std::string, const SafeTensors*>& tensors() const {
    return files_of_;
  }
  /// Maps the name of each tensor that dhp cannot compute with to its type.
  [[nodiscard]] const std::map<std::string, std::string>& skipped() const { return skipped_; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  /// The name of a folder may end in .safetensors, too.
  [[nodiscard]] static bool is_file(const std::string& path) {
    std::error_code none;
    return detail::ends_in(path, ".safetensors") && !std::filesystem::is_directory(path, none);
  }
  void open(const std::string& path, const nlohmann::json& shared = {}) {
    const auto folder = std::filesystem::path(path).parent_path();
    check(!detail::is_there(folder / "index.json"), path, " is a part of the checkpoint ",
          folder.string(), ", which has the rest; give that folder");
    const auto& file = *files_.emplace_back(std::make_unique<SafeTensors>(path, shared));
    for (const auto& [name, tensor] : file.tensors()) {
      const auto [at, fresh] = files_of_.emplace(name, &file);
      check(fresh, "tensor ", name, " is in ", at->second->path(), " and in ", path,
            "; a tensor has one place");
    }
    skipped_.insert(file.skipped().begin(), file.skipped().end());
  }
  void open_all(const std::string& folder) {
    const auto path = folder + "/" + index_name;
    std::string twice;
    const auto json = detail::parse_strictly(text_of(path), twice);
    check(json.is_object() && json.contains("weight_map") && json["weight_map"].is_object(), path,
          " is damaged: it is no JSON object with a \"weight_map\"");
    check(twice.empty(), path, " is damaged: it has \"", twice, "\" twice");
    std::set<std::string> names;
    for (const auto& [tensor, file] : json["weight_map"].items()) {
      check(file.is_string() && file.get<std::string>().ends_with(".safetensors") &&
                file.get<std::string>().find('/') == std::string::npos,
            path, " is damaged: tensor ", tensor, " is not in a .safetensors file beside it");
      names.insert(file.get<std::string>());
    }
    const auto shared = json.value("metadata", nlohmann::json());
    for (const auto& name : names) open(folder + "/" + name, shared);
    for (const auto& [tensor, file] : json["weight_map"].items()) {
      const auto found = files_of_.find(tensor);
      const auto where = folder + "/" + file.get<std::string>();
      const bool there =
          found != files_of_.end() ? found->second->path() == where : skipped_.contains(tensor);
      check(there, path, " says that tensor ", tensor, " is in ", where, ", and it is not");
    }
  }

  std::string path_;
  std::vector<std::unique_ptr<SafeTensors>> files_;
  std::map<std::string, const SafeTensors*> files_of_;
  std::map<std::string, std::string> skipped_;
};

}  // namespace dhp
