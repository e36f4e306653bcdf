// The cache of blocks: a cached block is read from the file once, the cache stays within its limit, and an unwritable
// folder is no error.
#include <dhp/data/block_cache.hpp>
#include <tests/support/threads.hpp>

#include "damage.hpp"

namespace {

// A file of bytes 0, 1, 2, ... in memory. Records its reads.
struct Slow {
  explicit Slow(std::size_t size) : bytes(size) {
    for (std::size_t at = 0; at < size; ++at) bytes[at] = static_cast<std::byte>(at * 7);
  }
  auto load() {
    return [this](std::uint64_t at, std::span<std::byte> to) {
      dhp::check(at + to.size() <= bytes.size(), "past the end");
      std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), to.size(), to.begin());
      read += to.size();
    };
  }
  /// Reads the whole file in parts of 7 bytes.
  void check_all(dhp::detail::BlockCache& cache, std::size_t number) {
    for (std::size_t at = 0; at < bytes.size(); at += 7) {
      std::vector<std::byte> part(std::min<std::size_t>(7, bytes.size() - at));
      cache.read(number, at, part, load());
      CHECK(std::equal(part.begin(), part.end(), bytes.begin() + static_cast<std::ptrdiff_t>(at)));
    }
  }
  std::vector<std::byte> bytes;
  std::atomic<std::size_t> read{0};
};
std::uint64_t bytes_in(const Folder& folder) {
  std::uint64_t sum = 0;
  for (const auto& file : folder.files())
    if (std::filesystem::is_regular_file(file)) sum += std::filesystem::file_size(file);
  return sum;
}
void no_warning(const std::string& sentence) { FAIL(sentence); }

TEST_CASE("block cache: blocks that fit are read once for all processes, others every time") {
  const Folder folder;
  Slow first(100), second(50);
  for (const std::size_t more : {150u, 0u, 0u}) {
    dhp::detail::BlockCache cache(folder.path, 150, no_warning, 16);
    const auto a = cache.add("a", 100), b = cache.add("b", 50);
    cache.remove_others();
    CHECK(cache.used_bytes() == 150);
    first.read = second.read = 0;
    for (int time = 0; time < 2; ++time) {
      first.check_all(cache, a);
      second.check_all(cache, b);
    }
    CHECK(first.read + second.read == more);
    CHECK(bytes_in(folder) == 150);
  }
  dhp::detail::BlockCache less(folder.path, 40, no_warning, 16);
  const auto a = less.add("a", 100);
  less.remove_others();
  CHECK(less.used_bytes() == 32);
  CHECK(bytes_in(folder) == 32);
  first.read = 0;
  first.check_all(less, a);
  CHECK(first.read == 68);
  CHECK(bytes_in(folder) == 32);
}

TEST_CASE("block cache: blocks of changed files are removed, a torn block is read again") {
  const Folder folder;
  folder.write("mine.txt", bytes_of("stays"));
  Slow slow(64);
  for (const auto* identity : {"old", "new"}) {
    dhp::detail::BlockCache cache(folder.path, 1000, no_warning, 16);
    const auto number = cache.add(identity, 64);
    cache.remove_others();
    slow.check_all(cache, number);
    CHECK(bytes_in(folder) == 64 + 5);
    for (const auto& file : folder.files())
      if (std::filesystem::file_size(file) == 16) {
        std::filesystem::resize_file(file, 3);
        break;
      }
    slow.read = 0;
    slow.check_all(cache, number);
    CHECK(slow.read == 16);
  }
}

TEST_CASE("block cache: threads and processes read each block only once") {
  const Folder folder;
  Slow slow(4000);
  std::vector<std::unique_ptr<dhp::detail::BlockCache>> caches;
  for (int process = 0; process < 2; ++process) {
    caches.push_back(std::make_unique<dhp::detail::BlockCache>(folder.path, 4000, no_warning, 256));
    caches.back()->add("a", 4000);
    caches.back()->remove_others();
  }
  on_threads(4, [&](std::size_t thread) { slow.check_all(*caches[thread % 2], 0); });
  CHECK(slow.read == 4000);
}

TEST_CASE("block cache: an unwritable folder gives one warning, and all data is read") {
  const Folder folder;
  folder.write("file", bytes_of("in the way"));
  std::vector<std::string> warnings;
  dhp::detail::BlockCache cache(
      folder / "file", 1000, [&](auto& sentence) { warnings.push_back(sentence); }, 16);
  const auto number = cache.add("a", 64);
  cache.remove_others();
  Slow slow(64);
  slow.check_all(cache, number);
  CHECK(warnings.size() == 1);
  CHECK(slow.read == 64);
  // On a full disk, the bytes are still returned.
  folder.write("full/there", bytes_of("x"));
  dhp::detail::BlockCache full(
      folder / "full", 1000, [&](auto& sentence) { warnings.push_back(sentence); }, 16);
  const auto other = full.add("a", 64);
  std::filesystem::create_directories(folder / "full/dhp-cache-" + dhp::detail::fnv1a_text("a") +
                                      "-0.part");
  full.remove_others();
  slow.check_all(full, other);
  REQUIRE(warnings.size() == 2);
  CHECK(has(warnings[1], "the cache takes no more blocks"));
  std::byte past{};
  CHECK_THROWS_WITH_AS(full.read(other, 64, {&past, 1}, slow.load()), Contains("past the end"),
                       dhp::Error);
}

}  // namespace
