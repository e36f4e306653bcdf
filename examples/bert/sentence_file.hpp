// Texts in a file: its lines, or one column of a .csv (RFC 4180), .tsv or .jsonl file. All may be packed by gzip.
#pragma once

#include <dhp/data/file.hpp>

#include "utf8.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace examples {

/// Takes records off a text; counts its lines.
class SentenceFile {
 public:
  /// name: of the file, for errors and its kind. Text has to be UTF-8; a byte order mark at its start is left out.
  SentenceFile(std::string_view text, std::string name) : text_(text), name_(std::move(name)) {
    check_utf8(text, name_);
    if (text_.starts_with("\xEF\xBB\xBF")) text_.remove_prefix(3);
  }

  /// Whether a file of this name has columns.
  [[nodiscard]] static bool has_columns(const std::string& name) {
    return is(name, ".csv") || is(name, ".tsv") || is(name, ".jsonl");
  }

  /// One for each line, the empty ones too. column: of a .csv, .tsv or .jsonl file; empty for others.
  [[nodiscard]] std::vector<std::string> sentences(const std::string& column) {
    const bool csv = is(name_, ".csv"), tsv = is(name_, ".tsv");
    const bool json = is(name_, ".jsonl");
    dhp::check(csv || tsv || json || column.empty(), "--text-column ", column, ": ", name_,
               " is no .csv, .tsv or .jsonl file, and has no columns");
    dhp::check(!(csv || tsv || json) || !column.empty(), name_,
               " has columns: say by --text-column which one has the text");
    std::vector<std::string> found;
    if (csv || tsv) {
      const auto header = csv ? quoted_fields() : fields_between_tabs();
      const auto at = std::find(header.begin(), header.end(), column);
      std::string all;
      for (const auto& field : header) all += (all.empty() ? "" : ", ") + field;
      dhp::check(at != header.end(), name_, " has no column ", column, ", but ", all);
      const auto number = static_cast<std::size_t>(at - header.begin());
      while (!text_.empty()) {
        auto fields = csv ? quoted_fields() : fields_between_tabs();
        dhp::check(number < fields.size(), name_, ", line ", line_, ": it has ", fields.size(),
                   " fields, and the sentence would be number ", number + 1);
        found.push_back(std::move(fields[number]));
      }
      return found;
    }
    while (!text_.empty()) found.push_back(json ? member(column) : std::string(line()));
    return found;
  }

 private:
  [[nodiscard]] static bool is(const std::string& name, const std::string& ending) {
    return name.ends_with(ending) || name.ends_with(ending + ".gz");
  }
  std::string_view line() {
    ++line_;
    const auto end = text_.find('\n');
    auto taken = text_.substr(0, end);
    text_.remove_prefix(end == text_.npos ? text_.size() : end + 1);
    if (taken.ends_with('\r')) taken.remove_suffix(1);
    return taken;
  }
  std::string member(const std::string& column) {
    const auto json = nlohmann::json::parse(line(), nullptr, false);
    dhp::check(json.is_object() && json.contains(column) && json[column].is_string(), name_,
               ", line ", line_, ": no JSON object with a text \"", column, "\"");
    return json[column].get<std::string>();
  }
  std::vector<std::string> fields_between_tabs() {
    std::vector<std::string> fields;
    auto rest = line();
    for (;;) {
      const auto end = rest.find('\t');
      fields.emplace_back(rest.substr(0, end));
      if (end == rest.npos) return fields;
      rest.remove_prefix(end + 1);
    }
  }
  /// A field in quotes may hold commas, line ends and, doubled, quotes.
  std::vector<std::string> quoted_fields() {
    ++line_;
    const auto first_line = line_;
    std::vector<std::string> fields(1);
    bool quoted = false;
    for (std::size_t at = 0; at < text_.size(); ++at) {
      const char now = text_[at];
      if (quoted) {
        const bool doubled = now == '"' && at + 1 < text_.size() && text_[at + 1] == '"';
        if (now == '\n') ++line_;
        if (now != '"' || doubled) fields.back() += now;
        if (doubled) ++at;
        else if (now == '"') quoted = false;
      } else if (now == '"' && fields.back().empty()) {
        quoted = true;
      } else if (now == ',') {
        fields.emplace_back();
      } else if (now == '\n') {
        text_.remove_prefix(at + 1);
        return fields;
      } else if (now != '\r') {
        fields.back() += now;
      }
    }
    dhp::check(!quoted, name_, ", line ", first_line, ": a quote is not closed");
    text_ = {};
    return fields;
  }

  std::string_view text_;
  std::string name_;
  std::size_t line_ = 0;
};

[[nodiscard]] inline std::vector<std::string> read_sentences(const std::string& path,
                                                             const std::string& column,
                                                             dhp::Unpack unpack = {}) {
  const auto bytes = dhp::read_unpacked(path, unpack, std::size_t{1} << 34);
  return SentenceFile({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path)
      .sentences(column);
}

}  // namespace examples
