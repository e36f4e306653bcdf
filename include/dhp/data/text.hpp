// Plain text from a UTF-8 file, or from all files of a directory: documents are files, and parts of them
// between blank lines. What is not text is an error that names file and byte.
#pragma once

#include <dhp/data/file.hpp>
#include <dhp/data/sentences.hpp>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

namespace dhp {

struct TextOptions {
  SentenceRule sentences = SentenceRule::automatic;
  Unpack unpack = nullptr;  ///< for .gz: gunzip of data/gzip.hpp
  std::size_t file_limit_bytes = default_file_limit_bytes;
};

/// Appends the documents of a file in memory; a byte order mark at its start is left out. Errors: zero
/// bytes (a binary file), not UTF-8, no words.
inline void add_text(std::string_view bytes, const std::string& name, const TextOptions& options,
                     Text& into) {
  check(!bytes.empty(), "", name, ": the file is empty");
  check_utf8(bytes, name);
  if (bytes.starts_with("\xEF\xBB\xBF")) bytes.remove_prefix(3);
  const auto before = into.sentences();
  add_documents(bytes, options.sentences, into);
  check(into.sentences() > before, "", name, ", byte 0: the file holds nothing but spaces");
}

/// The files of a directory and of those in it, in the byte order of their paths; hidden ones are left
/// out.
[[nodiscard]] inline std::vector<std::string> files_below(const std::string& path) {
  namespace fs = std::filesystem;
  std::vector<std::string> files;
  std::error_code error;
  for (fs::recursive_directory_iterator at(path, error), end; !error && at != end;
       at.increment(error)) {
    const bool hidden = at->path().filename().string().starts_with('.');
    const bool directory = at->is_directory(error);
    if (hidden && directory) at.disable_recursion_pending();
    if (!hidden && !directory) files.push_back(at->path().string());
    error.clear();  // a link that leads nowhere is listed, and named when it is read
  }
  check(!error, "", path, ": ", error.message());
  std::sort(files.begin(), files.end());
  return files;
}

/// Reads a file or a directory of files, in the byte order of their paths.
[[nodiscard]] inline Text read_text(const std::string& path, const TextOptions& options = {}) {
  std::error_code error;
  const bool directory = std::filesystem::is_directory(path, error);
  const auto files = directory ? files_below(path) : std::vector<std::string>{path};
  check(!files.empty(), "", path, ": the directory holds no file");
  Text text;
  for (const auto& file : files) {
    const auto bytes = read_unpacked(file, options.unpack, options.file_limit_bytes);
    add_text({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, file, options, text);
  }
  return text;
}

}  // namespace dhp
