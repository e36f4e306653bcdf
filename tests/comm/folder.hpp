// A folder of a test's own, gone afterwards.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace tests {

struct Folder {
  Folder() {
    char name[] = "/tmp/dhp_comm_XXXXXX";
    path = ::mkdtemp(name);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path); }
  [[nodiscard]] std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path))
      names.push_back(entry.path().string());
    return names;
  }
  std::string path;
};

}  // namespace tests
