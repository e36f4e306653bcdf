// Sentences of a file: its lines, or columns of a .csv (RFC 4180), .tsv or .jsonl file. All may be packed by gzip.
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
  /// name: of the file, for errors and its kind. Text has to be UTF-8.
  SentenceFile(std::string_view text, std::string name) : text_(text), name_(std::move(name)) {
    check_utf8(text, name_);
    const auto plain = name_.ends_with(".gz") ? name_.substr(0, name_.size() - 3) : name_;
    for (const auto* const kind : {"csv", "tsv", "jsonl"})
      if (plain.ends_with(std::string(".") + kind)) kind_ = kind;
  }

  /// One for each line, the empty ones too. column: of a .csv, .tsv or .jsonl file; empty for others.
  [[nodiscard]] std::vector<std::string> sentences(const std::string& column) {
    std::vector<std::string> found;
    if (kind_.empty()) {
      dhp::check(column.empty(), "--text-column ", column, ": ", name_,
                 " is no .csv, .tsv or .jsonl file, and has no columns");
      while (!text_.empty()) found.emplace_back(line());
      return found;
    }
    dhp::check(!column.empty(), name_,
               " has columns: say by --text-column which one has the sentences");
    for (auto& row : rows({column})) found.push_back(std::move(row.front()));
    return found;
  }

  /// Of each row, what it has in these columns; in JSON the last `values` of them may be numbers. Where all names are
  /// numbers, and the first line has none of them, there is no line of names: columns count from 1.
  [[nodiscard]] std::vector<std::vector<std::string>> rows(const std::vector<std::string>& columns,
                                                           std::size_t values = 0) {
    dhp::check(!kind_.empty(), name_, " is no .csv, .tsv or .jsonl file, and has no columns");
    std::vector<std::vector<std::string>> found;
    if (kind_ == "jsonl") {
      while (!text_.empty()) found.push_back(members(columns, values));
      return found;
    }
    const auto all = text_;
    const auto header = fields();
    std::vector<std::size_t> numbers;
    for (const auto& column : columns)
      if (const auto at = std::find(header.begin(), header.end(), column); at != header.end())
        numbers.push_back(static_cast<std::size_t>(at - header.begin()));
    if (numbers.empty() && std::all_of(columns.begin(), columns.end(), counts)) {
      for (const auto& column : columns) numbers.push_back(std::stoul(column) - 1);
      text_ = all;
      line_ = 0;
    }
    if (numbers.size() < columns.size()) has_no(columns, header);
    while (!text_.empty()) {
      auto row = fields();
      auto& chosen = found.emplace_back();
      for (const auto number : numbers) {
        dhp::check(number < row.size(), name_, ", line ", line_, ": it has ", row.size(),
                   " fields, and number ", number + 1, " is asked for");
        chosen.push_back(row[number]);
      }
    }
    return found;
  }

 private:
  std::string_view line() {
    ++line_;
    const auto end = text_.find('\n');
    auto taken = text_.substr(0, end);
    text_.remove_prefix(end == text_.npos ? text_.size() : end + 1);
    if (taken.ends_with('\r')) taken.remove_suffix(1);
    return taken;
  }
  /// A number of a column, from 1.
  [[nodiscard]] static bool counts(const std::string& column) {
    return column.size() < 5 && column.find_first_not_of("0123456789") == column.npos &&
           column.find_first_not_of('0') != column.npos;
  }
  [[noreturn]] void has_no(const std::vector<std::string>& columns,
                           const std::vector<std::string>& header) const {
    std::string all, missing;
    for (const auto& field : header) all += (all.empty() ? "" : ", ") + field;
    for (const auto& column : columns)
      if (std::find(header.begin(), header.end(), column) == header.end()) missing = column;
    dhp::fail("", name_, " has no column ", missing, ", but ", all);
  }
  std::vector<std::string> members(const std::vector<std::string>& columns, std::size_t values) {
    const auto json = nlohmann::json::parse(line(), nullptr, false);
    std::vector<std::string> found;
    for (std::size_t at = 0; at < columns.size(); ++at) {
      const auto& column = columns[at];
      const bool value = at + values >= columns.size();
      const bool there = json.is_object() && json.contains(column);
      dhp::check(there && (json[column].is_string() || (value && json[column].is_primitive())),
                 name_, ", line ", line_, ": no JSON object with a ", value ? "value" : "text",
                 " \"", column, "\"");
      found.push_back(json[column].is_string() ? json[column].get<std::string>()
                                               : json[column].dump());
    }
    return found;
  }
  std::vector<std::string> fields() {
    return kind_ == "csv" ? quoted_fields() : fields_between_tabs();
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
  std::string kind_;  // "csv", "tsv", "jsonl"; empty: lines
  std::size_t line_ = 0;
};

/// A file in memory, unpacked if that is needed.
[[nodiscard]] inline std::string read_text_file(const std::string& path, dhp::Unpack unpack = {}) {
  const auto bytes = dhp::read_unpacked(path, unpack, std::size_t{1} << 34);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace examples
