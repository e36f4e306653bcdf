// The ledger of a dry run: every launch with the bytes that it moves through the GPU's memory and its FLOP. The
// "memory" is address space: a launch's pointers lead to tensors, whose sizes are known.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace dry {

struct Launch {
  std::string name;
  double bytes = 0;  ///< read and written
  double flop = 0;   ///< of matrix products, convolutions and attention
};

class Ledger {
 public:
  /// Address space for a tensor; small ones have memory too, for what the host reads back.
  [[nodiscard]] std::byte* allocate(std::size_t bytes);
  void free(std::byte* block);
  /// Names a part of a block, such as a weight in the buffer of all weights.
  void name_part(const std::byte* first, std::size_t bytes) { parts_[first] = bytes; }

  /// Bytes from an address to the end of its tensor: of the smallest known part, or of the block. 0: not of the GPU.
  [[nodiscard]] double bytes_at(const void* address) const;
  /// The same, to the end of the block.
  [[nodiscard]] double block_bytes_at(const void* address) const;
  /// The start of the tensor with this address; null if it is not of the GPU.
  [[nodiscard]] const std::byte* tensor_of(const void* address) const;

  void add(std::string name, double bytes, double flop = 0) {
    launches_.push_back({std::move(name), bytes, flop});
  }
  /// The most bytes of tensors at a time.
  [[nodiscard]] double most_held_bytes() const { return most_held_; }
  void clear() { launches_.clear(); }
  [[nodiscard]] const std::vector<Launch>& launches() const { return launches_; }

  /// Of the rows and of the pairs of rows in a batch's rounded attention problem, the share that tokens have.
  double attention_rows = 1, attention_pairs = 1;

 private:
  struct Found {
    const std::byte* first = nullptr;
    std::size_t bytes = 0;
  };
  using Sizes = std::map<const std::byte*, std::size_t>;
  [[nodiscard]] static Found find(const Sizes& sizes, const void* address);
  [[nodiscard]] Found find(const void* address) const;

  Sizes blocks_, parts_;
  double held_ = 0, most_held_ = 0;
  std::vector<Launch> launches_;
};

/// Of the process, because C functions of the libraries write to it.
[[nodiscard]] Ledger& ledger();

/// From now on CUDA's libraries write into the ledger.
void begin();

}  // namespace dry
