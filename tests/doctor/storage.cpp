#include <examples/doctor/storage.hpp>

#include <doctest/doctest.h>

#include <filesystem>

using namespace examples::doctor;

namespace {

class Folder {
 public:
  Folder()
      : path_(std::filesystem::temp_directory_path() /
              ("dhp_storage." + std::to_string(::getpid()))) {
    std::filesystem::create_directory(path_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }
  [[nodiscard]] std::string path() const { return path_.string(); }
  [[nodiscard]] bool empty() const { return std::filesystem::is_empty(path_); }

 private:
  std::filesystem::path path_;
};

}  // namespace

TEST_CASE("storage: what was written is read, and nothing is left behind") {
  const Folder folder;
  const auto reading = try_storage(folder.path(), 3, 1, false, false);
  CHECK(reading.wrong == "");
  CHECK(reading.read_gb_s > 0);
  CHECK(reading.write_gb_s > 0);
  CHECK(reading.free_gb > 0);
  CHECK(folder.empty());
}

TEST_CASE("storage: one byte that was changed is found") {
  const Folder folder;
  CHECK(try_storage(folder.path(), 3, 1, true, false).wrong ==
        "block 1 of 1 MiB is not what was written");
}

TEST_CASE("storage: ranks and blocks differ") {
  std::vector<std::uint64_t> one(8), other(8);
  fill_block(one, 0, 1);
  for (const auto& [rank, block] : {std::pair{1, 1}, {0, 2}, {0, 0}}) {
    fill_block(other, rank, block);
    CHECK(one != other);
  }
}

TEST_CASE("storage: a directory that is not there, one that takes no files") {
  CHECK(try_storage("/no/such/directory", 1, 0, false, false).wrong ==
        "it cannot be used: No such file or directory");
  CHECK(try_storage("/proc", 1, 0, false, false).wrong.starts_with("no file can be made there: "));
}
