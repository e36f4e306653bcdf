// A folder of a test's own, gone afterwards.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace tests {

struct Folder {
  explicit Folder(const std::filesystem::path& in = std::filesystem::temp_directory_path()) {
    auto pattern = (in / "dhp_test_XXXXXX").string();
    path = ::mkdtemp(pattern.data());
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path); }
  [[nodiscard]] std::string operator/(const std::string& name) const { return path + "/" + name; }
  [[nodiscard]] std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path))
      names.push_back(entry.path().string());
    return names;
  }
  std::string path;
};

}  // namespace tests
