// Files between processes: whole, of this job, and of nobody else.
#include <dhp/comm/shared_folder.hpp>
#include <tests/comm/ranks.hpp>

#include <doctest/doctest.h>
#include <sys/wait.h>

#include <filesystem>

namespace {

using namespace tests;
namespace fs = std::filesystem;

// A folder of its own, gone afterwards.
struct Folder {
  Folder() {
    char name[] = "/tmp/dhp_shared_folder_XXXXXX";
    path = ::mkdtemp(name);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { fs::remove_all(path); }
  [[nodiscard]] std::size_t files() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(path), fs::directory_iterator()));
  }
  std::string path;
};

std::vector<std::byte> bytes_of(int seed, std::size_t count) {
  std::vector<std::byte> bytes;
  for (std::size_t at = 0; at < count; ++at)
    bytes.push_back(static_cast<std::byte>(static_cast<std::size_t>(seed) * 37 + at * 11));
  return bytes;
}

TEST_CASE("shared folder: processes that start in any order read the same bytes") {
  const Folder place;
  constexpr int readers = 4;
  const auto sent = bytes_of(1, 128);
  std::vector<pid_t> children;
  for (int reader = 0; reader < readers; ++reader) {
    const auto child = ::fork();
    if (child == 0) {  // no doctest in here
      int status = 1;
      try {
        if (reader % 2 == 1) sleep_ms(60);
        std::vector<std::byte> got(sent.size());
        SharedFolder(place.path, "job").get("id", got, 20);
        status = got == sent ? 0 : 2;
      } catch (...) {}
      ::_exit(status);
    }
    children.push_back(child);
  }
  sleep_ms(30);
  SharedFolder(place.path, "job").put("id", sent);
  for (const auto child : children) {
    int status = -1;
    CHECK(::waitpid(child, &status, 0) == child);
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  }
  CHECK(place.files() == 1);
  const auto rights = fs::status(place.path + "/id-job").permissions();
  CHECK((rights & (fs::perms::group_all | fs::perms::others_all)) == fs::perms::none);
  SharedFolder(place.path, "job").remove("id");
  CHECK(place.files() == 0);
}

TEST_CASE("shared folder: what another start has left is not read, and not overwritten") {
  const Folder place;
  SharedFolder(place.path, "monday").put("id", bytes_of(1, 16));
  const SharedFolder tuesday(place.path, "tuesday");
  std::vector<std::byte> got(16);
  const auto start = std::chrono::steady_clock::now();
  CHECK(message_of([&] { tuesday.get("id", got, 0.05); }) ==
        concat("rank 0 has not put ", place.path,
               "/id-tuesday there within 0.05 s; is it running, and is the folder shared?"));
  CHECK(seconds_since(start) < 20);
  tuesday.put("id", bytes_of(2, 16));
  tuesday.get("id", got, 20);
  CHECK(got == bytes_of(2, 16));
  CHECK(contains(message_of([&] { tuesday.put("id", bytes_of(3, 16)); }),
                 "/id-tuesday is there from an earlier start; give each start a DHP_JOB"));
  std::vector<std::byte> longer(17);
  CHECK(contains(message_of([&] { tuesday.get("id", longer, 20); }), "has 16 bytes, not 17"));
}

TEST_CASE("shared folder: a place that is none is refused") {
  CHECK(message_of([] { SharedFolder("/nowhere/at/all", "job"); }) ==
        "the ranks cannot meet in /nowhere/at/all, which is no folder; see DHP_RENDEZVOUS");
  const Folder place;
  CHECK(contains(message_of([&] { SharedFolder(place.path, "a/b"); }), "got \"a/b\"; see DHP_JOB"));
}

}  // namespace
