// The ledger of a dry run: every launch with its FLOP and the bytes that it moves through the GPU's memory. The
// "memory" is address space only: a launch's pointers lead to tensors, whose sizes are known.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace dry {

struct Launch {
  std::string name;
  double bytes = 0;  ///< bytes read and written
  double flop = 0;   ///< FLOP of matrix products, convolutions and attention
};

class Ledger {
 public:
  /// Returns address space for a tensor. Small tensors also have memory, for the values that the host reads back.
  [[nodiscard]] std::byte* allocate(std::size_t bytes);
  void free(std::byte* block);
  /// Names a part of a block, such as a weight in the buffer of all weights.
  void name_part(const std::byte* first, std::size_t bytes) { parts_[first] = bytes; }

  /// Returns the bytes from an address to the end of the smallest known part, else of the block; 0: not on the GPU.
  [[nodiscard]] double bytes_at(const void* address) const;
  /// Returns the bytes from an address to the end of its block; 0: not on the GPU.
  [[nodiscard]] double block_bytes_at(const void* address) const;
  /// Returns the start of the tensor with this address; null if the address is not on the GPU.
  [[nodiscard]] const std::byte* tensor_of(const void* address) const;

  void add(std::string name, double bytes, double flop = 0) {
    launches_.push_back({std::move(name), bytes, flop});
  }
  /// Returns the peak bytes of tensors.
  [[nodiscard]] double max_held_bytes() const { return max_held_; }
  void clear() { launches_.clear(); }
  [[nodiscard]] const std::vector<Launch>& launches() const { return launches_; }

  /// In a batch's rounded attention problem, the share of rows that are tokens, and of pairs that are pairs of tokens.
  double attention_rows = 1, attention_pairs = 1;

 private:
  struct Found {
    const std::byte* first = nullptr;
    std::size_t bytes = 0;
    [[nodiscard]] double bytes_from(const void* address) const {
      if (first == nullptr) return 0;
      return static_cast<double>(first + bytes - static_cast<const std::byte*>(address));
    }
  };
  using Sizes = std::map<const std::byte*, std::size_t>;
  [[nodiscard]] static Found find(const Sizes& sizes, const void* address);
  [[nodiscard]] Found find(const void* address) const;

  Sizes blocks_, parts_;
  double held_ = 0, max_held_ = 0;
  std::vector<Launch> launches_;
};

/// Returns the ledger of the process, which the libraries' C functions write to.
[[nodiscard]] Ledger& ledger();

/// Makes CUDA's libraries write into the ledger from now on.
void begin();

}  // namespace dry
