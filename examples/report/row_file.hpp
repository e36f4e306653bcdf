// RowFile: rows of numbers for other programs: .csv, .jsonl or .npy by the file's name, or JSON lines on standard
// output. It is there when it is complete.
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
  std::string what = "embedding";    ///< the name of a row in JSON
  std::vector<std::string> columns;  ///< their names
  std::int64_t rows = 0;             ///< that will be written
  bool wide = false;                 ///< doubles, else floats
  bool best = false;                 ///< JSON also names the column with the largest number
};

class RowFile : dhp::detail::NonCopyable {
 public:
  /// Throws where the name ends otherwise, or the file cannot be made.
  explicit RowFile(RowFileOptions options);
  ~RowFile();

  /// Appends [rows, columns] of floats or doubles. numbers: of the sample, from 1, that each row is of.
  void add(const dhp::HostArray& rows, const std::vector<std::int64_t>& numbers);
  /// Gives the file its name.
  void finish();
  /// Throws where no such file can be written.
  static void check_name(const std::string& path);

 private:
  void write(const std::string& text);

  RowFileOptions options_;
  std::string kind_;  // "csv", "jsonl", "npy"
  std::string part_;
  std::unique_ptr<dhp::OpenFile> file_;
  std::int64_t written_ = 0;
};

}  // namespace examples
