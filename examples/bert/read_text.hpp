// Reads text from a UTF-8 file, from all files of a directory, or from WordNet. Blank lines separate the documents of a
// file, and the texts in a column of a .csv, .tsv or .jsonl file are documents. Errors name the file and the byte at
// which it is not text.
#pragma once

#include <dhp/data/file.hpp>

#include "../data/utf8.hpp"
#include "sentence_file.hpp"
#include "sentences.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace examples {

struct TextOptions {
  SentenceRule sentences = SentenceRule::automatic;
  std::string column{};                  ///< column with the text, of .csv, .tsv and .jsonl files
  dhp::detail::Unpack unpack = nullptr;  ///< gunzip of data/gzip.hpp, for .gz files
};

/// Returns the file itself, or the files of a directory that are not empty, in the byte order of their paths.
[[nodiscard]] inline std::vector<std::string> text_files(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return {path};
  auto files = dhp::files_below(path);
  std::erase_if(files, [&](const auto& file) { return std::filesystem::is_empty(file, error); });
  return files;
}

/// Throws for files whose names show that they are no text.
inline void check_is_prose(const std::string& path, const std::string& model) {
  for (const auto& file : text_files(path)) {
    const auto is = [&](std::initializer_list<const char*> endings) {
      return std::any_of(endings.begin(), endings.end(),
                         [&](const char* ending) { return dhp::detail::ends_in(file, ending); });
    };
    dhp::check(!is({".json", ".json.gz"}), "", file,
               ": is JSON, not text; convert it by jq -c '.[]' to a .jsonl file with one object "
               "per line, and name the member with the text by --text-column");
    dhp::check(!is({".png", ".jpg", ".jpeg"}), "", file, ": is an image, and ", model,
               " learns from text; train_resnet50 takes images");
  }
}

/// Appends the documents of a file in memory and skips its byte order mark. Throws if the file has zero bytes (a binary
/// file), or is not UTF-8. In a file with columns each text is a document; blank lines cut it into several.
inline void add_text(std::string_view bytes, const std::string& name, const TextOptions& options,
                     Text& into) {
  if (!SentenceFile::has_columns(name))
    return add_documents(checked_utf8(bytes, name), options.sentences, into);
  for (const auto& text : SentenceFile(bytes, name).sentences(options.column))
    add_documents(text, options.sentences, into);
}

/// Reads a file or a directory of files, in the byte order of their paths. Throws if they have no text.
[[nodiscard]] inline Text read_text(const std::string& path, const TextOptions& options = {}) {
  const auto files = text_files(path);
  dhp::check(!files.empty(), "", path, ": the directory holds no text");
  dhp::check(
      options.column.empty() || std::any_of(files.begin(), files.end(), &SentenceFile::has_columns),
      "--text-column ", options.column, ": ", path,
      " has no .csv, .tsv or .jsonl file, and no columns");
  Text text;
  for (const auto& file : files)
    add_text(read_text_file(file, options.unpack), file, options, text);
  dhp::check(text.sentences() > 0, "", path, ": has no text",
             options.column.empty() ? "" : " in column ", options.column);
  return text;
}

// The glosses of WordNet (Fellbaum 1998), real English in Debian's package wordnet-base. A gloss is a
// document: its first sentence is the definition, the others are examples.
//
//   00003553 03 n 02 whole 0 unit 0 015 @ ... | an assemblage of parts; "the team is a unit"

/// The four files that a WordNet directory holds, in the order in which they are read.
inline constexpr std::array<std::string_view, 4> wordnet_files{"data.noun", "data.verb", "data.adj",
                                                               "data.adv"};

/// Returns whether the directory holds WordNet.
[[nodiscard]] inline bool is_wordnet(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path + "/" + std::string(wordnet_files[0]), error);
}

/// Adds a gloss as a document. Its examples are in double quotes after the definition. Text between examples, such as
/// an author's name, is left out.
inline void add_gloss(std::string_view gloss, Text& into) {
  const auto strip = [](std::string_view part) {
    const auto loose = [](char letter) {
      return detail::is_blank(letter) || letter == ';' || letter == ':' || letter == ',';
    };
    while (!part.empty() && loose(part.front())) part.remove_prefix(1);
    while (!part.empty() && loose(part.back())) part.remove_suffix(1);
    return part;
  };
  // An example begins with a quote after a semicolon or colon; other quotes belong to the definition.
  auto start = gloss.find('"');
  while (start != gloss.npos) {
    const auto before = detail::trimmed(gloss.substr(0, start));
    if (before.empty() || before.back() == ';' || before.back() == ':') break;
    start = gloss.find('"', start + 1);
  }
  into.add_sentence(strip(gloss.substr(0, start)));
  while (start != gloss.npos) {
    const auto end = gloss.find('"', start + 1);
    into.add_sentence(strip(gloss.substr(start + 1, end == gloss.npos ? end : end - start - 1)));
    start = end == gloss.npos ? end : gloss.find('"', end + 1);
  }
  into.end_document();
}

/// Appends the glosses of one data file in memory. Throws for an entry without a gloss; the error names the file and
/// the entry's first byte.
inline void add_wordnet(std::string_view bytes, const std::string& name, Text& into) {
  bytes = checked_utf8(bytes, name);
  const auto before = into.size();
  for (std::size_t at = 0; at < bytes.size();) {
    const auto end = std::min(bytes.find('\n', at), bytes.size());
    const auto line = bytes.substr(at, end - at);
    if (!line.empty() && line.front() != ' ') {  // the license at the top is indented
      const auto bar = line.find(" | ");
      dhp::check(line.front() >= '0' && line.front() <= '9' && bar != line.npos, "", name,
                 ", byte ", at,
                 ": not an entry of WordNet: no number in front, or no gloss after \" | \"");
      add_gloss(line.substr(bar + 3), into);
    }
    at = end + 1;
  }
  dhp::check(into.size() > before, "", name, ", byte ", bytes.size(),
             ": holds no entry of WordNet");
}

/// Reads the data files of a WordNet directory (Debian: /usr/share/wordnet).
[[nodiscard]] inline Text read_wordnet(const std::string& path) {
  Text text;
  for (const auto file : wordnet_files) {
    const auto name = path + "/" + std::string(file);
    add_wordnet(dhp::detail::text_in(dhp::read_file(name, std::size_t{1} << 30)), name, text);
  }
  return text;
}

}  // namespace examples
