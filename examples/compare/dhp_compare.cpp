// dhp_compare finds the first difference between two runs, by their metrics files, checkpoints or traced values. Or it
// reads the flight records of a job's ranks (--flight-record of the trainers) and reports what they were doing and
// which ranks are waited for. Exit status: 0 no difference, or nothing under way; 1 a difference, or a waiting rank; 2
// an error in the command line or a file.
#include "../options/checked_options.hpp"
#include "../report/progress.hpp"
#include "checkpoints.hpp"
#include "flight_comparison.hpp"
#include "metrics.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>

namespace {

using namespace examples;

constexpr int group_width = 15, what_width = 48;

void print_rank(const FlightRecordFile& file, std::size_t last) {
  print(concat("rank ", file.rank, " of ", file.world_size, ", ", file.name, ", written ",
               file.written, ", ", dhp::detail::pluralize(file.calls, "call")));
  constexpr std::array widths{-8, -13, -11, group_width, 11, what_width};
  print_row(widths, {"call", "began at", "took", "group", "in group", "what"});
  std::size_t at = 0;
  for (const auto& call : file.entries) {
    if (++at + last <= file.entries.size() && !call.unfinished()) continue;
    char began[32];
    std::snprintf(began, sizeof began, "%.3f s", call.start_s);
    const char* mark = call.failed ? "x " : call.end_s ? "" : "> ";
    print_row(widths, {concat(call.number), began, mark + duration(time_in_call_s(call, file)),
                       call.group, CallKey(call).description(),
                       cut(description(call), what_width,
                           call.where.empty() ? "" : concat(" at ", call.where))});
  }
  print("");
}

void print_differences(const FlightComparison& comparison) {
  if (comparison.calls().empty()) return;
  print("Calls in which ranks differ:");
  const auto row = [](std::string group, std::string number, std::string what, std::string inside,
                      std::string ended, std::string absent, std::string unknown) {
    print("  " + cell(std::move(group), group_width) + cell(std::move(number), 12) +
          cell(std::move(what), 29) + " " + cell(std::move(inside), 12) + " " +
          cell(std::move(ended), 12) + " " + cell(std::move(absent), 12) + " " +
          cell(std::move(unknown), 12));
  };
  row("group", "in group", "what", "in it", "ended", "not come", "no file");
  for (const auto& call : comparison.calls()) {
    std::map<std::string, Ranks> by_what;  // ranks that disagree have a row each
    for (const auto& [rank, entry] : call.entries)
      by_what[call.disagree() ? description(*entry) : description(call.first())].insert(rank);
    for (const auto& [what, inside] : by_what)
      row(call.group, call.key.description(), what, ranges(inside), ranges(call.ended),
          ranges(call.absent), ranges(call.unknown));
  }
  print("");
}

Files read(const std::vector<std::string>& paths) {
  Files files;
  for (const auto& path : paths) {
    auto file = FlightRecordFile::read(path);
    const int size = files.empty() ? file.world_size : files.begin()->second.world_size;
    dhp::check(file.world_size == size, path, " belongs to a job of ", file.world_size,
               " ranks, the other files to one of ", size, "; give the files of one job");
    const int rank = file.rank;
    dhp::check(files.emplace(rank, std::move(file)).second, path, " is a second file of rank ",
               rank, "; give one file of each rank");
  }
  return files;
}

/// Returns whether no rank waits for another.
bool compare_flight_records(const std::vector<std::string>& paths, std::size_t last) {
  const auto files = read(paths);
  for (const auto& [rank, file] : files) print_rank(file, last);
  const FlightComparison comparison(files);
  print_differences(comparison);
  print(comparison.sentence());
  return comparison.calls().empty();
}

/// Returns true if the two runs do not differ or, for flight records, if no rank waits.
bool compare(const std::vector<std::string>& paths, std::size_t last) {
  const auto is_folder = [](const auto& path) { return std::filesystem::is_directory(path); };
  for (const auto& path : paths) {
    dhp::check(std::filesystem::exists(path), path, ": there is no such file or directory");
    dhp::check(!std::filesystem::is_other(path), path, " is a device or a pipe; give a file");
  }
  const auto folder = std::find_if(paths.begin(), paths.end(), is_folder);
  const auto file = std::find_if_not(paths.begin(), paths.end(), is_folder);
  dhp::check(folder == paths.end() || file == paths.end(), "", folder == paths.end() ? "" : *folder,
             " is a folder and ", file == paths.end() ? "" : *file,
             " is a file; give two of a kind");
  const bool folders = std::all_of(paths.begin(), paths.end(), is_folder);
  const auto run = std::find_if(paths.begin(), paths.end(), MetricsFile::is_one);
  if (!folders && run == paths.end()) return compare_flight_records(paths, last);
  for (const auto& path : paths)
    dhp::check(folders || MetricsFile::is_one(path), path,
               " is no file of --metrics or --trace-values, and ", *run,
               " is one; give two of a kind");
  dhp::check(paths.size() == 2, "two runs are compared, got ", paths.size(), "; give two ",
             folders ? "folders" : "metrics files");
  if (folders) return compare_checkpoints(paths[0], paths[1], last);
  const bool values = ValuesFile::is_one(paths[0]);
  dhp::check(values == ValuesFile::is_one(paths[1]), paths[values ? 0 : 1],
             " is a file of --trace-values and ", paths[values ? 1 : 0],
             " one of --metrics; give two of a kind");
  return values ? compare_values(paths[0], paths[1], last) : compare_metrics(paths[0], paths[1]);
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app(
      "Compares two runs by their metrics files (--metrics), checkpoints (--save) or values of "
      "layers (--trace-values): the first difference, its size and its usual causes. Or reads the "
      "flight records of a job: what each rank was doing, and which ranks hold up the others.");
  std::vector<std::string> paths;
  std::size_t last = 10;
  app.add_option("FILES", paths,
                 "Two metrics files; two files of values; two checkpoints, or folders of them; or "
                 "the files of --flight-record, one of each rank")
      ->required();
  app.add_option(
         "--last", last,
         "Differing tensors, or calls of each rank, to show; unfinished calls are always shown")
      ->capture_default_str();
  bool same = false;
  const auto status = app.read(argc, argv, [&] {
    same = compare(paths, last);
    check_output();
  });
  return status.value_or(same ? 0 : 1);
}
