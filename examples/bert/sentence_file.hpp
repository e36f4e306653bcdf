// Reads texts from a file: its lines, or columns of a .csv (RFC 4180), .tsv or .jsonl file. Each file may be gzipped.
#pragma once

#include <dhp/data/file.hpp>
#include <dhp/data/known_file.hpp>
#include <dhp/train/safetensors.hpp>

#include "../data/utf8.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace examples {

struct TableRow {
  std::size_t line = 0;  ///< the row's first line in the file
  std::vector<std::string> fields;
};

/// Splits a text into records and counts its lines. Blank lines of a table are no records.
class SentenceFile {
 public:
  /// name: gives the format by its ending, and appears in errors. The text must be UTF-8; a byte order mark is skipped.
  SentenceFile(std::string_view text, std::string name)
      : name_(std::move(name)), kind_(kind_of(name_)), text_(checked_utf8(text, name_)) {
    const auto end = text_.find_first_of("\r\n");  // old Macs end lines with \r alone
    if (end != text_.npos && text_[end] == '\r' && !text_.substr(end).starts_with("\r\n") &&
        (!kind_.empty() || text_.find('\n') == text_.npos))
      line_end_ = '\r';
  }

  /// Returns whether a file with this name has columns.
  [[nodiscard]] static bool has_columns(const std::string& name) { return !kind_of(name).empty(); }

  /// Returns, after rows(), whether the quotes of a .tsv belong to its texts instead of enclosing fields.
  [[nodiscard]] bool quotes_are_letters() const { return !quotes_; }

  /// Returns one sentence per line, also for empty lines. column: for .csv, .tsv and .jsonl files; empty for others.
  [[nodiscard]] std::vector<std::string> sentences(const std::string& column) {
    std::vector<std::string> found;
    if (kind_.empty()) {
      dhp::check(column.empty(), "--text-column ", column, ": ", name_,
                 " is no .csv, .tsv or .jsonl file, and has no columns");
      while (!text_.empty()) found.emplace_back(line());
      return found;
    }
    dhp::check(!column.empty(), name_, " has columns: name the one with the text by --text-column");
    for (auto& row : rows({column})) found.push_back(std::move(row.fields.front()));
    return found;
  }

  /// Returns the values of these columns in each row. Only the last `values` columns may be JSON numbers or booleans.
  /// If all names are numbers and the first line has none of them, there is no header line, and columns count from 1.
  [[nodiscard]] std::vector<TableRow> rows(const std::vector<std::string>& columns,
                                           std::size_t values = 0) {
    dhp::check(!kind_.empty(), name_, " is no .csv, .tsv or .jsonl file, and has no columns");
    if (kind_ == "jsonl") {
      const auto first = text_.find_first_not_of(" \t\r\n");
      dhp::check(first == text_.npos || text_[first] != '[', name_,
                 ": is a JSON array; jq -c '.[]' writes an object a line");
      std::vector<TableRow> found;
      while (!text_.empty())
        if (const auto now = line(); now.find_first_not_of(" \t\r") != now.npos)
          found.push_back({line_, members(now, columns, values)});
      return found;
    }
    if (kind_ == "tsv") look_at_quotes();
    const auto all = text_;
    const auto first = next_row();
    dhp::check(first.has_value(), name_, " has no row");
    const auto& header = first->fields;
    std::vector<std::size_t> numbers;
    for (const auto& column : columns) {
      const auto at = std::find(header.begin(), header.end(), column);
      if (at == header.end()) continue;
      numbers.push_back(static_cast<std::size_t>(at - header.begin()));
      if (std::find(at + 1, header.end(), column) != header.end())
        reject(first->line, "column ", column, " stands there twice; rename one of them");
    }
    const bool counted = std::all_of(columns.begin(), columns.end(), counts);
    const bool named = !numbers.empty() || !counted;
    // A header of numbers is written by pandas, for instance.
    const bool has_words = std::any_of(header.begin(), header.end(), [](const auto& field) {
      return field.find_first_not_of("0123456789") != field.npos;
    });
    if (counted && named && has_words)
      reject(first->line, "column ", header[numbers.front()],
             " may be a name or a number there; if the line has names, rename that one, else put a "
             "line with the names of all columns first");
    if (!named) {
      for (const auto& column : columns) numbers.push_back(std::stoul(column) - 1);
      text_ = all;
      line_ = 0;
    }
    if (numbers.size() < columns.size()) has_no(columns, header);
    std::vector<TableRow> found;
    while (auto row = next_row()) {
      auto& [line, fields] = *row;
      if (fields.size() != header.size())
        reject(line, "it has ", fields.size(), " fields, and the first line has ", header.size(),
               "; a text with ", kind_ == "csv" ? "a comma" : "a tab", " stands in quotes");
      auto& chosen = found.emplace_back(TableRow{line, {}}).fields;
      for (const auto number : numbers) {
        if (number >= fields.size())
          reject(line, "it has ", fields.size(), " fields, and number ", number + 1,
                 " is asked for");
        chosen.push_back(fields[number]);
      }
    }
    return found;
  }

 private:
  [[nodiscard]] static std::string kind_of(const std::string& name) {
    const auto plain = dhp::detail::ends_in(name, ".gz") ? name.substr(0, name.size() - 3) : name;
    for (const auto* const kind : {"csv", "tsv", "jsonl"})
      if (dhp::detail::ends_in(plain, std::string(".") + kind)) return kind;
    return dhp::detail::ends_in(plain, ".ndjson") ? "jsonl" : "";
  }
  template <class... Parts>
  [[noreturn]] void reject(std::size_t line, const Parts&... parts) const {
    dhp::fail(name_, ", line ", line, ": ", parts...);
  }
  std::string_view line() {
    ++line_;
    const auto end = text_.find(line_end_);
    auto taken = text_.substr(0, end);
    text_.remove_prefix(end == text_.npos ? text_.size() : end + 1);
    if (taken.ends_with('\r')) taken.remove_suffix(1);
    return taken;
  }
  /// Returns whether the name is the number of a column, from 1.
  [[nodiscard]] static bool counts(const std::string& column) {
    return column.size() < 5 && column.find_first_not_of("0123456789") == column.npos &&
           column.find_first_not_of('0') != column.npos;
  }
  /// Lists names for an error message, cut off after about 200 characters.
  [[nodiscard]] static std::string listed(const std::vector<std::string>& names) {
    std::string all;
    for (const auto& name : names) {
      if (all.size() > 200) return all + ", ...";
      all += (all.empty() ? "" : ", ") + (name.size() > 40 ? name.substr(0, 40) + "..." : name);
    }
    return all;
  }
  [[noreturn]] void has_no(const std::vector<std::string>& columns,
                           const std::vector<std::string>& header) const {
    std::string missing;
    for (const auto& column : columns)
      if (std::find(header.begin(), header.end(), column) == header.end()) missing = column;
    const bool other =
        header.size() == 1 && header.front().find_first_of(",;\t") != header.front().npos;
    dhp::fail("", name_, " has no column ", missing, ", but ", listed(header),
              other ? "; fields of a .csv stand between commas, of a .tsv between tabs" : "");
  }

  std::vector<std::string> members(std::string_view text, const std::vector<std::string>& columns,
                                   std::size_t values) const {
    std::string twice;
    const auto json = dhp::detail::parse_strictly(std::string(text), twice);
    if (json.is_discarded()) no_json(text);
    if (!json.is_object()) reject(line_, "is of type ", json.type_name(), ", and no JSON object");
    std::vector<std::string> found;
    for (std::size_t at = 0; at < columns.size(); ++at) {
      const auto& column = columns[at];
      if (!json.contains(column)) {
        std::vector<std::string> names;
        for (const auto& [name, value] : json.items()) names.push_back(name);
        reject(line_, "the object has no \"", column, "\", but ", listed(names));
      }
      if (twice == column) reject(line_, "the object has \"", column, "\" twice");
      const auto& member = json[column];
      const bool value = at + values >= columns.size();
      if (!member.is_string() && (!value || !member.is_primitive() || member.is_null()))
        reject(line_, "\"", column, "\" is ", member.is_null() ? "" : "of type ",
               member.type_name(), "; a ", value ? "text or number" : "text", " would be right");
      if (member.is_number_float() && std::abs(member.get<double>()) >= 0x1p53)
        reject(line_, "\"", column,
               "\" has more digits than a number keeps; write it as a text, in quotes");
      found.push_back(member.is_string() ? member.get<std::string>() : member.dump());
    }
    return found;
  }
  [[noreturn]] void no_json(std::string_view text) const {
    std::size_t at = text.size();
    try {
      [[maybe_unused]] const auto json = nlohmann::json::parse(text);
    } catch (const nlohmann::json::parse_error& error) {
      at = std::min(at, error.byte - 1);
    } catch (const nlohmann::json::out_of_range&) {
      reject(line_, "one of its numbers is beyond 1.8e308; write it as a text, in quotes");
    }
    const auto rest = text.substr(at);
    if (rest.empty())
      reject(line_,
             "the object does not end in this line; jq -c . writes one a line, unless the "
             "file is cut off");
    const bool number = rest.starts_with("N") || rest.starts_with("I") || rest.starts_with("a");
    reject(line_, "is not JSON at its byte ", at + 1, ", \"", rest.substr(0, 20), "\"",
           number ? "; JSON has no NaN and no Infinity: leave the row out" : "");
  }

  /// Decides whether the quotes of a .tsv enclose fields, as in the files of pandas, or belong to the texts. They
  /// enclose fields if the file then has the same number of fields in all rows.
  void look_at_quotes() {
    const auto text = text_;
    try {
      std::size_t width = 0;
      while (const auto row = next_row()) {
        const auto before = std::exchange(width, row->fields.size());
        dhp::check(before == 0 || before == width, "rows differ");
      }
    } catch (const dhp::Error&) {
      quotes_ = false;
    }
    text_ = text;
    line_ = 0;
  }
  /// Returns the next row that is not blank. A quoted field may hold commas, line ends and doubled quotes.
  std::optional<TableRow> next_row() {
    const char comma = kind_ == "csv" ? ',' : '\t';
    while (!text_.empty()) {
      TableRow result{++line_, std::vector<std::string>(1)};
      bool quoted = false, closed = false, blank = true;
      std::size_t at = 0;
      for (; at < text_.size(); ++at) {
        const char now = text_[at];
        const char next = at + 1 < text_.size() ? text_[at + 1] : '\0';
        auto& field = result.fields.back();
        if (quoted) {
          if (now == line_end_) ++line_;
          if (now != '"' || next == '"') field += now;
          else quoted = false, closed = true;
          if (now == '"' && next == '"') ++at;
        } else if (now == line_end_) {
          break;
        } else if (now == comma) {
          result.fields.emplace_back();
          closed = false;
        } else if (now == '"' && field.empty() && quotes_ && !closed) {
          quoted = true;
        } else if (now == '"' && quotes_ && field.find_first_not_of(' ') == field.npos) {
          reject(result.line, "a space stands before a quote; leave it out");
        } else if (now != '\r' || next != '\n') {
          if (closed)
            reject(result.line, "after a closing quote comes \"", text_.substr(at, 1),
                   "\"; a quote between quotes is doubled, as in \"\"\"No\"\", he said\"");
          field += now;
        }
        blank = blank && (now == ' ' || now == '\r' || (now == '\t' && comma != now));
      }
      if (quoted) reject(result.line, "a quote is not closed");
      text_.remove_prefix(std::min(at + 1, text_.size()));
      if (!blank) return result;
    }
    return std::nullopt;
  }

  std::string name_;
  std::string kind_;  // "csv", "tsv", "jsonl"; empty for lines
  std::string_view text_;
  char line_end_ = '\n';
  bool quotes_ = true;  // quotes enclose fields
  std::size_t line_ = 0;
};

/// Reads a file into memory, unpacked if necessary.
[[nodiscard]] inline std::string read_text_file(const std::string& path,
                                                dhp::detail::Unpack unpack = {}) {
  return std::string(dhp::detail::text_in(
      dhp::detail::read_unpacked(path, unpack, dhp::default_file_limit_bytes)));
}

}  // namespace examples
