// RowFile: rows of numbers for other programs, as .csv, .jsonl or .npy by the file's name, or as JSON lines on standard
// output. The file appears when it is complete.
#pragma once

#include <dhp/core/open_file.hpp>
#include <dhp/data/host_array.hpp>

#include <cstdint>
#include <memory>
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

class RowFile : dhp::detail::NonCopyable {
 public:
  /// Throws if the name has another ending, or the file cannot be made.
  explicit RowFile(RowFileOptions options);
  ~RowFile();

  /// Appends [rows, columns] of floats or doubles. numbers: the sample of each row, from 1.
  void add(const dhp::HostArray& rows, const std::vector<std::int64_t>& numbers);
  /// Gives the complete file its name.
  void finish();
  /// Throws unless the name is empty or ends in .csv, .jsonl or .npy.
  static void check_name(const std::string& path);

 private:
  RowFile(std::string kind, RowFileOptions&& options);  // opens the file
  void write(const std::string& text);

  RowFileOptions options_;
  std::string kind_;  // "csv", "jsonl", "npy"
  std::string part_;
  std::unique_ptr<dhp::OpenFile> file_;
  std::int64_t written_ = 0;
};

}  // namespace examples
