// Reads samples out of shards, from any thread, with a bounded number of files open.
#pragma once

#include <dhp/data/shard_index.hpp>

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

namespace dhp {

class ShardReader {
 public:
  explicit ShardReader(const std::vector<ShardFile>& shards)
      : shards_(&shards), open_(shards.size()) {}

  /// Fills `to` with the bytes of a shard from `at`.
  void read(std::uint32_t shard, std::uint64_t at, std::span<std::byte> to) const {
    opened(shard)->read(at, to);
    bytes_.fetch_add(to.size(), std::memory_order_relaxed);
  }
  /// Read from the shards so far.
  [[nodiscard]] std::uint64_t bytes_read() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::size_t most_open = 128;

  // The file that has been open longest is closed, once nobody reads it.
  [[nodiscard]] std::shared_ptr<const OpenFile> opened(std::uint32_t shard) const {
    const std::lock_guard lock(mutex_);
    auto& file = open_[shard];
    if (!file) {
      if (order_.size() == most_open) {
        open_[order_[oldest_]].reset();
        order_[oldest_] = shard;
        oldest_ = (oldest_ + 1) % most_open;
      } else {
        order_.push_back(shard);
      }
      file = std::make_shared<const OpenFile>((*shards_)[shard].path, O_RDONLY);
    }
    return file;
  }

  const std::vector<ShardFile>* shards_;
  mutable std::atomic<std::uint64_t> bytes_{0};
  mutable std::mutex mutex_;
  mutable std::vector<std::shared_ptr<const OpenFile>> open_;
  mutable std::vector<std::uint32_t> order_;  // a ring of those that are open
  mutable std::size_t oldest_ = 0;
};

}  // namespace dhp
