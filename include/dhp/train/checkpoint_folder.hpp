// The folder of a run: whole checkpoints such as step-00000040, and the file `latest` with the name of the newest one.
// A checkpoint is written as step-00000040.part and renamed when it is completely on disk.
#pragma once

#include <dhp/core/hash.hpp>
#include <dhp/core/open_file.hpp>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace dhp {

/// Returns true for a loss or a perplexity; a higher value of any other measure is better.
[[nodiscard]] inline bool lower_is_better(const std::string& measure) {
  return measure.ends_with("loss") || measure.ends_with("perplexity");
}

/// The operations on the folder; only one rank calls them.
class CheckpointFolder {
 public:
  explicit CheckpointFolder(std::string path) : path_(std::move(path)) {}

  [[nodiscard]] static std::string name_of(std::int64_t step) {
    return "step-" + detail::digits_of(static_cast<std::uint64_t>(step), 8, 10);
  }
  [[nodiscard]] std::string path(const std::string& name) const { return path_ + "/" + name; }

  /// Returns the names of whole checkpoints: first the one that `latest` names, then the others, newest first.
  [[nodiscard]] std::vector<std::string> names() const {
    auto found = listed(true);
    // Numbers with more digits are larger.
    std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
      return a.size() != b.size() ? a.size() > b.size() : a > b;
    });
    const auto first = std::find(found.begin(), found.end(), latest());
    if (first != found.end()) std::rotate(found.begin(), first, first + 1);
    return found;
  }
  /// Returns the names of unfinished checkpoints: of interrupted saves and of a running one.
  [[nodiscard]] std::vector<std::string> unfinished() const { return listed(false); }
  [[nodiscard]] std::string latest() const {
    std::string name;
    std::error_code none;
    if (!std::filesystem::is_regular_file(path("latest"), none)) return name;
    std::ifstream file(path("latest"));
    file >> name;  // stops before the line ending, which differs between systems
    return name;
  }

  /// Makes the folder before training, so that a folder without write access is known early.
  void make() const {
    std::error_code error;
    std::filesystem::create_directories(path_, error);
    check(error != std::errc::file_exists, "cannot make the directory ", path_,
          ": a link there leads nowhere; make the folder that it names, or remove it");
    check(!error, "cannot make the directory ", path_, ": ", error.message());
    detail::check_system(::access(path_.c_str(), W_OK) == 0, "cannot write to ", path_);
  }
  /// Makes an empty folder for a step's checkpoint; removes the remains of interrupted saves.
  void begin(std::int64_t step) const {
    const auto part = path(name_of(step) + ".part");
    std::error_code error;
    for (const auto& name : unfinished()) std::filesystem::remove_all(path(name), error);
    std::filesystem::create_directory(part, error);
    check(!error, "cannot make the directory ", part, ": ", error.message());
  }
  /// Makes a step's checkpoint visible, as the latest; all its files must be on disk.
  void commit(std::int64_t step) const {
    const auto name = name_of(step);
    const auto whole = path(name), part = path(name + ".part"), old = path(name + ".old");
    sync(part);
    std::error_code none;
    std::filesystem::remove_all(old, none);
    // One move replaces a checkpoint of the same step, so a crash leaves one of the two. Some file systems cannot.
    if (::renameat2(AT_FDCWD, part.c_str(), AT_FDCWD, whole.c_str(), RENAME_EXCHANGE) != 0) {
      if (std::filesystem::exists(whole)) rename(whole, old);
      rename(part, whole);
    }
    sync(path_);
    name_latest(name);
    for (const auto& replaced : {old, part}) std::filesystem::remove_all(replaced, none);
  }
  /// Names a whole checkpoint as the newest one.
  void name_latest(const std::string& name) const {
    replace_file(path("latest"), name + "\n");
    sync(path_);
  }
  /// Keeps the `newest` newest checkpoints, and `best` unless it is empty; removes all others.
  void keep(std::size_t newest, const std::string& best) const {
    const auto all = names();
    for (std::size_t at = newest; at < all.size(); ++at)
      if (all[at] != best) remove(all[at]);
  }
  /// Removes a checkpoint. It is renamed first, so that a partly removed folder never looks like a checkpoint.
  void remove(const std::string& name) const {
    if (!detail::is_there(path(name))) return;
    rename(path(name), path(name + ".old"));
    std::error_code none;
    std::filesystem::remove_all(path(name + ".old"), none);
  }

 private:
  [[nodiscard]] std::vector<std::string> listed(bool whole) const {
    std::vector<std::string> found;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(path_, error)) {
      const auto name = entry.path().filename().string();
      // All other names are the user's, such as those of copies and archives.
      const auto end = std::min(name.find_first_not_of("0123456789", 5), name.size());
      const auto rest = name.substr(end);
      if (name.starts_with("step-") && end > 5 &&
          (whole ? rest.empty() : rest == ".part" || rest == ".old"))
        found.push_back(name);
    }
    using enum std::errc;
    check(!error || error == no_such_file_or_directory || error == not_a_directory, "cannot read ",
          path_, ": ", error.message());
    return found;
  }
  static void rename(const std::string& from, const std::string& to) {
    detail::check_system(::rename(from.c_str(), to.c_str()) == 0, "cannot rename ", from, " to ",
                         to);
  }
  static void sync(const std::string& folder) { OpenFile(folder, O_RDONLY).sync(); }

  std::string path_;
};

}  // namespace dhp
