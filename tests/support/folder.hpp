// A temporary folder, removed when the test ends.
#pragma once

#include <tests/support/test.hpp>

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
  /// Writes a file, makes the folders above it, and returns its path.
  std::string write(const std::string& name, const std::vector<std::byte>& bytes) const {
    const auto to = *this / name;
    std::filesystem::create_directories(std::filesystem::path(to).parent_path());
    std::ofstream file(to, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    REQUIRE(file.flush().good());
    return to;
  }
  std::string path;
};

}  // namespace tests
