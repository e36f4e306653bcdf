// BlockCache keeps blocks of slow files in a folder on a fast disk, which all processes of a host share. It keeps the
// first blocks up to its limit and never evicts. An epoch reads every block once in a new order, so evicting the oldest
// would remove blocks that are needed soon (Mohan et al., "Analyzing and mitigating data stalls in DNN training", VLDB
// 2021).
#pragma once

#include <dhp/core/hash.hpp>
#include <dhp/core/open_file.hpp>
#include <dhp/core/text.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace dhp::detail {
class BlockCache {
 public:
  static constexpr std::uint64_t usual_block_bytes = std::uint64_t{4} << 20;

  /// Calls warn(sentence) once if the folder is not writable; blocks not yet cached are then read from their files.
  BlockCache(std::string folder, std::uint64_t limit_bytes,
             std::function<void(const std::string&)> warn,
             std::uint64_t block_bytes = usual_block_bytes)
      : folder_(std::move(folder)),
        limit_(limit_bytes),
        block_(block_bytes),
        warn_(std::move(warn)) {
    check(block_bytes > 0, "blocks of a cache need 1 byte or more");
  }

  /// Adds a file and returns its index; must not run during reads. Blocks without room in the cache are never kept.
  /// identity: a text that changes with the file's contents.
  std::size_t add(std::string_view identity, std::uint64_t bytes) {
    File file{.name = concat("dhp-cache-", fnv1a_text(identity), "-"), .bytes = bytes};
    for (; file.blocks * block_ < bytes; ++file.blocks) {
      const auto more = size_of_block(file, file.blocks);
      if (more > limit_ - used_) break;
      used_ += more;
    }
    files_.push_back(std::move(file));
    return files_.size() - 1;
  }
  /// Returns the bytes that the cache holds when all its blocks have been read.
  [[nodiscard]] std::uint64_t used_bytes() const { return used_; }

  /// Removes blocks of earlier runs that this run does not use.
  void remove_others() {
    std::set<std::string> wanted;
    for (const auto& file : files_)
      for (std::uint64_t block = 0; block < file.blocks; ++block)
        wanted.insert(file.name + std::to_string(block));
    std::error_code error;
    std::filesystem::create_directories(folder_, error);
    std::vector<std::filesystem::path> others;
    for (const auto& entry : std::filesystem::directory_iterator(folder_, error)) {
      auto name = entry.path().filename().string();
      if (!name.starts_with("dhp-cache-") || name.starts_with("dhp-cache-lock-")) continue;
      if (name.ends_with(".part")) name.resize(name.size() - 5);  // another process may be writing
      if (!wanted.contains(name)) others.push_back(entry.path());
    }
    for (const auto& path : others) std::filesystem::remove(path, error);
  }

  /// Fills `to` with the bytes of a file from offset `at`. load(at, span) reads the file itself. Thread-safe.
  void read(std::size_t number, std::uint64_t at, std::span<std::byte> to, const auto& load) {
    const auto& file = files_[number];
    while (!to.empty()) {
      const auto block = at / block_;
      const auto inside = at % block_;
      const auto part = to.first(as_size(std::min<std::uint64_t>(to.size(), block_ - inside)));
      // load() also gets reads past the end, because it reports them.
      if (block >= file.blocks || inside + part.size() > size_of_block(file, block) ||
          !read_block(file, block, inside, part, load))
        load(at, part);
      at += part.size();
      to = to.subspan(part.size());
    }
  }

 private:
  struct File {
    std::string name;
    std::uint64_t bytes = 0;
    std::uint64_t blocks = 0;  // number of blocks that may be cached, from the first
  };

  [[nodiscard]] std::uint64_t size_of_block(const File& file, std::uint64_t block) const {
    return std::min(block_, file.bytes - block * block_);
  }
  [[nodiscard]] bool read_kept(const std::string& path, std::uint64_t size, std::uint64_t inside,
                               std::span<std::byte> to) const {
    if (::access(path.c_str(), R_OK) != 0) return false;
    try {
      const OpenFile kept(path, O_RDONLY);
      if (kept.size() != size) return false;
      kept.read(inside, to);
      return true;
    } catch (const Error&) {
      return false;
    }
  }
  // Reads from a cached block; loads and caches the block first if needed. Returns false if it cannot be cached.
  bool read_block(const File& file, std::uint64_t block, std::uint64_t inside,
                  std::span<std::byte> to, const auto& load) {
    const auto path = concat(folder_, "/", file.name, block);
    const auto size = size_of_block(file, block);
    if (read_kept(path, size, inside, to)) return true;
    if (broken_.load(std::memory_order_relaxed)) return false;
    std::vector<std::byte> bytes;
    try {
      // One process or thread loads the block; the others wait for the lock.
      OpenFile lock(concat(folder_, "/dhp-cache-lock-", fnv1a(path) % 64), O_WRONLY | O_CREAT);
      lock.lock();
      if (read_kept(path, size, inside, to)) return true;
      bytes.resize(as_size(size));
      try {
        load(block * block_, std::span(bytes));
      } catch (const Error&) {
        return false;  // reading the sample reports the file's error
      }
      replace_file(path, [&](OpenFile& kept) { kept.write(bytes); });
    } catch (const Error& error) {
      if (!broken_.exchange(true) && warn_)
        warn_(
            concat("the cache takes no more blocks, and further ones are read from their shards: ",
                   error.sentence()));
      if (bytes.empty()) return false;
    }
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(inside), to.size(), to.begin());
    return true;
  }

  std::string folder_;
  std::uint64_t limit_, block_;
  std::function<void(const std::string&)> warn_;
  std::vector<File> files_;
  std::uint64_t used_ = 0;
  std::atomic<bool> broken_{false};
};
}  // namespace dhp::detail
