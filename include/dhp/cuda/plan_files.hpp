// PlanFiles keeps cuDNN plans with compiled kernels between runs, one file for each plan. It replaces a file that is
// damaged or was made with another GPU, driver or library version.
#pragma once

#include <dhp/core/hash.hpp>
#include <dhp/cuda/checked_file.hpp>

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

namespace dhp::detail::cuda {

class PlanFiles {
 public:
  /// environment: one line with everything on which plans depend. Without a folder, nothing is kept.
  PlanFiles(std::string folder, std::string environment)
      : folder_(std::move(folder)), environment_(std::move(environment)) {}

  /// Returns the text of a plan, if there is a usable file. key: one line with the problem and the engine.
  [[nodiscard]] std::optional<std::string> find(const std::string& key) {
    const auto path = path_of(key);
    if (folder_.empty() || !std::filesystem::exists(path)) return {};
    auto text = read_checked(path);
    if (!text) {
      unusable(key, "its file is damaged");
      return {};
    }
    const auto head = head_of(key);
    if (!text->starts_with(head)) {
      unusable(key, "it is of another GPU, driver or library version");
      return {};
    }
    return text->substr(head.size(), text->size() - head.size() - 1);
  }
  /// Writes a plan's file; ignores write errors.
  void keep(const std::string& key, const std::string& text) {
    if (folder_.empty()) return;
    // Several ranks may keep the same plan at the same time, so each writes a file of its own and then renames it.
    const auto path = path_of(key);
    const auto own = concat(path, ".", ::getpid(), ".", reinterpret_cast<std::uintptr_t>(this));
    std::error_code failed;
    std::filesystem::create_directory(folder_, failed);
    try {
      replace_file(own, with_checksum(head_of(key) + text + "\n"));
      std::filesystem::rename(own, path, failed);
    } catch (const Error&) {
      folder_.clear();
    }
    if (failed) std::filesystem::remove(own, failed);
  }

  /// Records, with the reason, that a kept plan cannot be used; it will be rebuilt.
  void unusable(const std::string& key, const std::string& why) {
    if (reported_) return;
    reported_ = true;
    warning_ = concat("a plan of cuDNN that was kept in ", folder_, " cannot be used (", why,
                      "); it is compiled anew, and so are others like it: ", key);
  }
  /// Returns, only once, a sentence about the first plan that could not be used; otherwise returns an empty text.
  [[nodiscard]] std::string take_warning() { return std::exchange(warning_, {}); }

  [[nodiscard]] std::string path_of(const std::string& key) const {
    return concat(folder_, "/", fnv1a_text(key));
  }

 private:
  [[nodiscard]] std::string head_of(const std::string& key) const {
    return concat("dhp plan 1\n", environment_, "\n", key, "\n");
  }

  std::string folder_, environment_, warning_;
  bool reported_ = false;
};

}  // namespace dhp::detail::cuda
