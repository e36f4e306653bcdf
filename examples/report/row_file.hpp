// write_rows(): rows of numbers for other programs, as .csv, .jsonl or .npy by the file's name, or as JSON lines on
// standard output.
#pragma once

#include <dhp/core/open_file.hpp>
#include <dhp/data/host_array.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace examples {

struct RowFileOptions {
  std::string path;                  ///< empty: standard output
  std::string what = "embedding";    ///< name of a row in JSON
  std::vector<std::string> columns;  ///< names of the columns
  std::int64_t rows = 0;             ///< number of rows to write
  bool wide = false;                 ///< writes doubles instead of floats
  bool best = false;                 ///< adds the column with the largest number to JSON
};

/// The file while it is written.
class RowFile {
 public:
  /// file: null for standard output.
  RowFile(const RowFileOptions& options, dhp::OpenFile* file);

  /// Appends [rows, columns] of floats or doubles. numbers: the sample of each row, from 1.
  void add(const dhp::HostArray& rows, const std::vector<std::int64_t>& numbers);
  [[nodiscard]] std::int64_t written() const { return written_; }

 private:
  void write(const std::string& text);

  const RowFileOptions& options_;
  std::string kind_;  // "csv", "jsonl", "npy"
  dhp::OpenFile* file_;
  std::int64_t written_ = 0;
};

/// Throws unless the name is empty or ends in .csv, .jsonl or .npy. On the rank that writes the file, also throws if it
/// cannot be written.
void check_row_file(const std::string& path, bool writes);
/// Calls put(file), which adds all rows. The file appears when it is complete.
void write_rows(const RowFileOptions& options, const std::function<void(RowFile&)>& put);

}  // namespace examples
