// The storage check: each rank writes a file of its own, has it dropped from the page cache, and reads it back.
#pragma once

#include "examination.hpp"
#include "timing.hpp"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace examples::doctor {

struct StorageReading {
  double write_gb_s = not_known;
  double read_gb_s = not_known;
  double free_gb = not_known;
  std::string wrong{};  ///< what went wrong, or was read wrongly; empty: nothing
};

/// A file without a name in a directory: gone when this is, or when the process is.
class NamelessFile {
 public:
  /// `wrong` becomes what went wrong, if anything.
  NamelessFile(const std::string& directory, std::string& wrong) {
    std::string name = directory + "/dhp_doctor.XXXXXX";
    file_ = ::mkstemp(name.data());
    if (file_ < 0) wrong = dhp::concat("no file can be made there: ", std::strerror(errno));
    else ::unlink(name.c_str());
  }
  NamelessFile(const NamelessFile&) = delete;
  NamelessFile& operator=(const NamelessFile&) = delete;
  ~NamelessFile() {
    if (file_ >= 0) ::close(file_);
  }
  [[nodiscard]] int number() const { return file_; }

 private:
  int file_ = -1;
};

/// What block `index` of the file of a rank holds.
inline void fill_block(std::vector<std::uint64_t>& block, int rank, std::int64_t index) {
  std::uint64_t word = 0x9e3779b97f4a7c15 * static_cast<std::uint64_t>(index * 4096 + rank + 1);
  for (auto& value : block) {
    word ^= word << 13;
    word ^= word >> 7;
    word ^= word << 17;
    value = word;
  }
}

/// `blocks` of 1 MiB. spoil: a byte of the file is changed before it is read; slow: reading is held up.
[[nodiscard]] inline StorageReading try_storage(const std::string& directory, std::int64_t blocks,
                                                int rank, bool spoil, bool slow) {
  StorageReading reading;
  struct statvfs space {};
  if (::statvfs(directory.c_str(), &space) != 0) {
    reading.wrong = dhp::concat("it cannot be used: ", std::strerror(errno));
    return reading;
  }
  reading.free_gb = static_cast<double>(space.f_bavail) * static_cast<double>(space.f_frsize) / 1e9;
  const NamelessFile file(directory, reading.wrong);
  if (!reading.wrong.empty()) return reading;
  std::vector<std::uint64_t> wanted((1 << 20) / sizeof(std::uint64_t)), got(wanted.size());
  const auto bytes = wanted.size() * sizeof(std::uint64_t);
  const auto at = [&](std::int64_t block) {
    return static_cast<off_t>(block) * static_cast<off_t>(bytes);
  };
  const double gigabytes = static_cast<double>(blocks) * static_cast<double>(bytes) / 1e9;
  const auto whole = [&](ssize_t count, std::int64_t block, const char* what) {
    if (count == static_cast<ssize_t>(bytes)) return true;
    reading.wrong = dhp::concat("block ", block, " cannot be ", what, ": ",
                                count < 0 ? std::strerror(errno) : "only a part of it is");
    return false;
  };

  const Stopwatch writing;
  for (std::int64_t block = 0; block < blocks; ++block) {
    fill_block(wanted, rank, block);
    if (!whole(::pwrite(file.number(), wanted.data(), bytes, at(block)), block, "written"))
      return reading;
  }
  if (::fsync(file.number()) != 0) {
    reading.wrong = dhp::concat("it does not keep what was written: ", std::strerror(errno));
    return reading;
  }
  reading.write_gb_s = gigabytes / writing.seconds();
  if (spoil) {
    fill_block(wanted, rank, blocks / 2);
    const auto other = static_cast<std::uint8_t>(~wanted.front());
    const bool written = ::pwrite(file.number(), &other, 1, at(blocks / 2)) == 1;
    if (!written || ::fsync(file.number()) != 0) return reading;
  }

  ::posix_fadvise(file.number(), 0, 0, POSIX_FADV_DONTNEED);
  double seconds = 0;
  for (std::int64_t block = 0; block < blocks; ++block) {
    fill_block(wanted, rank, block);
    const Stopwatch watch;  // of reading alone
    if (!whole(::pread(file.number(), got.data(), bytes, at(block)), block, "read")) return reading;
    if (slow) hold_up(watch);
    seconds += watch.seconds();
    if (got != wanted && reading.wrong.empty())
      reading.wrong = dhp::concat("block ", block, " of 1 MiB is not what was written");
  }
  reading.read_gb_s = gigabytes / seconds;
  return reading;
}

template <class Dev>
[[nodiscard]] Finding check_storage(Examination<Dev>& exam) {
  const auto& directory = exam.options.storage;
  if (directory.empty()) return skipped("storage", "no directory was named by --storage");
  Finding finding;
  finding.check = "storage";
  const auto blocks = std::max<std::int64_t>(1, static_cast<std::int64_t>(exam.options.storage_mb));
  exam.world.barrier();
  const auto reading = try_storage(directory, blocks, exam.rank(), exam.fault("wrong-storage"),
                                   exam.fault("slow-storage"));
  finding.figures.push_back(gather_figure(exam, "read", "GB/s", reading.read_gb_s));
  judge_rates(exam, finding.figures.back(), exam.limits().storage_slowdown,
              "is it mounted there as on the other hosts, and is the way to it free?", finding);
  finding.figures.push_back(gather_figure(exam, "write", "GB/s", reading.write_gb_s));
  finding.figures.push_back(gather_figure(exam, "free", "GB", reading.free_gb));
  std::vector<Problem> own;
  const auto where = dhp::concat(exam.who(exam.rank()), ": ", directory);
  if (!reading.wrong.empty())
    own.push_back({Verdict::failed,
                   {},
                   dhp::concat(where, ": ", reading.wrong,
                               "; keep no data and no checkpoints there before it is repaired")});
  const auto space = below(reading.free_gb, exam.limits().storage_free_gb);
  if (space != Verdict::ok)
    own.push_back({space,
                   {},
                   dhp::concat(where, " has ", three_digits(reading.free_gb),
                               " GB left; make room, or choose another place")});
  gather_problems(exam, own, finding);
  finding.summary = dhp::concat(blocks, " MiB of each rank in ", directory);
  return finding;
}

}  // namespace examples::doctor
