// ShardReader: reads samples from shards. It is thread-safe, limits the number of open files, and can use a cache.
#pragma once

#include <dhp/data/block_cache.hpp>
#include <dhp/data/shard_index.hpp>

#include <atomic>
#include <memory>
#include <mutex>

namespace dhp::detail {
class ShardReader {
 public:
  /// `shards` and `cache`, which may be null, must outlive the reader.
  explicit ShardReader(const std::vector<ShardFile>& shards, BlockCache* cache = nullptr)
      : shards_(&shards), cache_(cache), open_(shards.size()) {
    for (const auto& shard : shards)
      if (cache != nullptr)
        in_cache_.push_back(cache->add(concat(std::filesystem::absolute(shard.path).string(), " ",
                                              shard.bytes, " ", shard.modified_ns),
                                       shard.bytes));
  }

  /// Fills `to` with a shard's bytes from offset `at`.
  void read(std::uint32_t shard, std::uint64_t at, std::span<std::byte> to) const {
    const auto load = [&](std::uint64_t from, std::span<std::byte> part) {
      opened(shard)->read(from, part);
      bytes_.fetch_add(part.size(), std::memory_order_relaxed);
    };
    if (cache_ != nullptr) cache_->read(in_cache_[shard], at, to, load);
    else load(at, to);
  }
  /// Returns the number of bytes read from the shards rather than from the cache.
  [[nodiscard]] std::uint64_t bytes_read() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::size_t max_open = 128;

  // Opens a shard. If too many are open, drops the one opened first; it is closed once all its readers are done.
  [[nodiscard]] std::shared_ptr<const OpenFile> opened(std::uint32_t shard) const {
    const std::lock_guard lock(mutex_);
    auto& file = open_[shard];
    if (!file) {
      if (order_.size() == max_open) {
        open_[order_[oldest_]].reset();
        order_[oldest_] = shard;
        oldest_ = (oldest_ + 1) % max_open;
      } else {
        order_.push_back(shard);
      }
      file = std::make_shared<const OpenFile>((*shards_)[shard].path, O_RDONLY);
    }
    return file;
  }

  const std::vector<ShardFile>* shards_;
  BlockCache* cache_;
  std::vector<std::size_t> in_cache_;
  mutable std::atomic<std::uint64_t> bytes_{0};
  mutable std::mutex mutex_;
  mutable std::vector<std::shared_ptr<const OpenFile>> open_;
  mutable std::vector<std::uint32_t> order_;  // ring of the open shards, in the order of opening
  mutable std::size_t oldest_ = 0;
};
}  // namespace dhp::detail
