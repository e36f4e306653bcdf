// Finds the shards in a directory or by a pattern.
#pragma once

#include <dhp/core/error.hpp>
#include <dhp/data/known_file.hpp>

#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace dhp {

/// Paths of shards, sorted bytewise.
struct FoundShards {
  std::vector<std::string> train;
  std::vector<std::string> held_out;  ///< such as validation-..., if others are named train-...

  [[nodiscard]] bool empty() const { return train.empty(); }
};

namespace detail {

/// Returns whether a file belongs to shards without being one: an index, a checksum, a description.
[[nodiscard]] inline bool is_beside_shards(std::string_view name) {
  for (const auto* end : {".idx", ".index", ".json", ".jsonl", ".txt", ".csv", ".tsv", ".md",
                          ".yaml", ".yml", ".md5", ".crc", ".sha256", ".part"})
    if (ends_in(name, end)) return true;
  return name.starts_with("dhp-index-");
}

/// Accepts *.tar, *.tfrecord, *.tfrecord-..., ImageNet's train-00000-of-01024, and *.tar.gz, for which reading throws.
[[nodiscard]] inline bool named_like_shard(const std::string& name) {
  if (name.starts_with('.') || is_beside_shards(name)) return false;
  const auto lower = lower_case(name);
  const auto of = lower.find("-of-");
  const auto is_digit = [&](std::size_t at) {
    return at < lower.size() && lower[at] >= '0' && lower[at] <= '9';
  };
  return lower.ends_with(".tar") || lower.find(".tar.") != lower.npos || lower.ends_with(".tgz") ||
         lower.find("tfrecord") != lower.npos ||
         (of != lower.npos && of > 0 && is_digit(of - 1) && is_digit(of + 4));
}

/// Returns whether a file name contains one of the words, delimited by non-letters.
[[nodiscard]] inline bool has_word(const std::string& path,
                                   std::initializer_list<std::string_view> words) {
  const auto name = path.substr(path.rfind('/') + 1);
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  for (std::size_t first = 0; first < name.size(); ++first) {
    std::size_t last = first;
    while (last < name.size() && is_letter(name[last])) ++last;
    const auto word = std::string_view(name).substr(first, last - first);
    if (std::find(words.begin(), words.end(), word) != words.end()) return true;
    first = last;
  }
  return false;
}

}  // namespace detail

/// Finds one shard, a directory's shards, or all files of a pattern such as "data/*.bin"; finding none is no error. If
/// some names contain the word train, shards with val, valid, validation, test or eval are held out.
[[nodiscard]] inline FoundShards find_shards(const std::string& path) {
  std::vector<std::string> files;
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error)) {
    if (detail::named_like_shard(std::filesystem::path(path).filename().string()))
      files.push_back(path);
  } else if (std::filesystem::is_directory(path, error)) {
    for (std::filesystem::directory_iterator at(path, error), end; !error && at != end;
         at.increment(error))
      if (detail::named_like_shard(at->path().filename().string()) && at->is_regular_file(error))
        files.push_back(at->path().string());
    check(!error, path, ": ", error.message());
  } else {
    glob_t found{};
    if (::glob(path.c_str(), 0, nullptr, &found) == 0)
      for (std::size_t at = 0; at < found.gl_pathc; ++at)
        if (const std::filesystem::path file = found.gl_pathv[at];
            std::filesystem::is_regular_file(file, error) &&
            !detail::is_beside_shards(file.filename().string()))
          files.emplace_back(found.gl_pathv[at]);
    ::globfree(&found);
  }
  std::sort(files.begin(), files.end());
  const auto trains = [](const std::string& file) { return detail::has_word(file, {"train"}); };
  const bool divided = std::any_of(files.begin(), files.end(), trains);
  FoundShards result;
  for (auto& file : files) {
    const bool held_out = divided && !trains(file) &&
                          detail::has_word(file, {"val", "valid", "validation", "test", "eval"});
    (held_out ? result.held_out : result.train).push_back(std::move(file));
  }
  return result;
}

}  // namespace dhp
