#include "row_file.hpp"

#include <dhp/data/known_file.hpp>

#include "output_file.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <iomanip>
#include <iostream>
#include <span>
#include <sstream>
#include <utility>

namespace examples {
namespace {

[[nodiscard]] std::string kind_of(const std::string& path) {
  if (path.empty()) return "jsonl";
  for (const auto* const kind : {"csv", "jsonl", "npy"})
    if (dhp::detail::ends_in(path, dhp::concat(".", kind))) return kind;
  dhp::fail("--output ", path, ": its name ends in none of .csv, .jsonl and .npy");
}

/// Returns a head in NumPy's format 1.0, padded to a multiple of 64 as the format requires.
[[nodiscard]] std::string npy_head(const RowFileOptions& options) {
  std::string head =
      dhp::concat("{'descr': '", options.wide ? "<f8" : "<f4", "', 'fortran_order': False, ",
                  "'shape': (", options.rows, ", ", options.columns.size(), "), }");
  constexpr std::size_t before = 10, multiple = 64;
  const auto whole = (before + head.size() + 1 + multiple - 1) / multiple * multiple;
  head.resize(whole - before - 1, ' ');
  head += '\n';
  std::string text("\x93NUMPY\x01\x00", 8);
  text += static_cast<char>(head.size() & 0xFF);
  text += static_cast<char>(head.size() >> 8);
  return text + head;
}

/// Quotes a field of a .csv file if necessary.
[[nodiscard]] std::string quoted(const std::string& field) {
  if (field.find_first_of(",\"\r\n") == field.npos) return field;
  std::ostringstream result;
  result << std::quoted(field, '"', '"');
  return result.str();
}

template <class T>
[[nodiscard]] std::string row_text(std::span<const T> row, std::int64_t number,
                                   const RowFileOptions& options, bool json) {
  std::string text;
  if (json) text += dhp::concat("{\"number\": ", number, ", \"", options.what, "\": [");
  else text += dhp::concat(number, ",");
  for (std::size_t at = 0; at < row.size(); ++at) {
    if (at > 0) text += json ? ", " : ",";
    // JSON has no infinities or NaN.
    if (json && !(row[at] - row[at] == 0)) text += "null";
    else text += dhp::concat(row[at]);  // the shortest digits that restore the same number
  }
  if (!json) return text + '\n';
  text += ']';
  if (options.best && !row.empty()) {
    const auto best = std::max_element(row.begin(), row.end()) - row.begin();
    text += ", \"best\": " + nlohmann::json(options.columns[static_cast<std::size_t>(best)]).dump();
  }
  return text + "}\n";
}

}  // namespace

RowFile::RowFile(const RowFileOptions& options, dhp::OpenFile* file)
    : options_(options), kind_(kind_of(options.path)), file_(file) {
  if (kind_ == "npy") write(npy_head(options_));
  if (kind_ != "csv") return;
  std::string head = "number";
  for (const auto& column : options_.columns) head += "," + quoted(column);
  write(head + '\n');
}

void RowFile::add(const dhp::HostArray& rows, const std::vector<std::int64_t>& numbers) {
  const auto put = [&]<class T>(std::span<const T> values) {
    written_ += std::ssize(numbers);
    dhp::check(values.size() == numbers.size() * options_.columns.size(), "rows ", rows.shape(),
               " for ", numbers.size(), " numbers, of ", options_.columns.size(), " columns");
    std::string text;
    if (kind_ == "npy") {
      const auto bytes = std::as_bytes(values);
      text.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    } else {
      const auto columns = options_.columns.size();
      for (std::size_t at = 0; at < numbers.size(); ++at)
        text += row_text(values.subspan(at * columns, columns), numbers[at], options_,
                         kind_ == "jsonl");
    }
    write(text);
  };
  if (options_.wide) put(rows.values<double>());
  else put(rows.values<float>());
}

void RowFile::write(const std::string& text) {
  if (file_ != nullptr) file_->write(text);
  else std::cout << text;
}

void check_row_file(const std::string& path, bool writes) {
  (void)kind_of(path);
  if (writes) OutputFile("--output", path);
}

void write_rows(const RowFileOptions& options, const std::function<void(RowFile&)>& put) {
  const auto fill = [&](dhp::OpenFile* file) {
    RowFile rows(options, file);
    put(rows);
    dhp::check(rows.written() == options.rows, "", rows.written(), " rows were written, and ",
               options.rows, " promised");
  };
  if (options.path.empty()) return fill(nullptr);  // exit_status_of() checks standard output
  dhp::replace_file(options.path, [&](dhp::OpenFile& file) { fill(&file); });
}

}  // namespace examples
