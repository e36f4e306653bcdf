// The dropout mask of attention for cuDNN, by dhp's global element indices. Each pass draws it
// again: keeping it would cost a mask per layer.
#pragma once

#include <dhp/cuda/fallback_attention.hpp>
#include <dhp/cuda/matrix_walk.hpp>

namespace dhp::cuda {

/// The words of elements number, .., number + 3 of a stream, which may span two blocks.
[[nodiscard]] constexpr std::array<std::uint32_t, 4> four_words(const RandomStream& random,
                                                                std::uint64_t number) {
  const auto words = random.block(number / 4);
  const auto skip = static_cast<std::size_t>(number % 4);
  if (skip == 0) return words;
  const auto next = random.block(number / 4 + 1);
  std::array<std::uint32_t, 4> found{};
  for (std::size_t at = 0; at < 4; ++at)
    // select without indexing: registers cannot be indexed
    for (std::size_t start = 1; start < 4; ++start)
      if (skip == start) found[at] = start + at < 4 ? words[start + at] : next[start + at - 4];
  return found;
}

/// mask [graph_samples, heads, length, length]: 1 for a kept probability, 0 for a dropped one or
/// padding. A thread draws as many keys as one store holds.
template <class T>
struct AttentionMask {
  static constexpr int width = pack_size<T>;
  static_assert(width % 4 == 0);
  AttentionPlace place;
  std::int64_t samples, graph_samples, length;
  T* mask;

  template <class B>
  constexpr void operator()(B& block) const {
    const auto packs = length / width;  // per query
    const auto random = place.stream();
    for (MatrixWalk at = walk_by_thread(block, length * packs);
         at.row < graph_samples * place.heads; at.next()) {
      const auto head =
          at.row < samples * place.heads ? place.head_of(at.row) : AttentionPlace::Head{};
      const auto query = at.column / packs;
      store<width>(mask + (at.row * length + query) * length + at.column % packs * width,
                   kept(random, head, query, at.column % packs * width));
    }
  }

 private:
  constexpr Pack<T, width> kept(const RandomStream& random, const AttentionPlace::Head& head,
                                std::int64_t query, std::int64_t first_key) const {
    Pack<T, width> out;
    for (T& one : out.at) one = T(0.0f);
    if (query >= head.length || first_key >= head.length) return out;
    const auto number = place.first_number(head, query) + static_cast<std::uint64_t>(first_key);
    for (int four = 0; four < width; four += 4) {
      const auto words = four_words(random, number + static_cast<std::uint64_t>(four));
      for (int at = 0; at < 4; ++at)
        if (first_key + four + at < head.length &&
            (words[static_cast<std::size_t>(at)] >> 8) >= place.threshold)
          out.at[four + at] = T(1.0f);
    }
    return out;
  }
};

/// Bytes of a 16-bit mask.
[[nodiscard]] constexpr double attention_mask_bytes(std::int64_t samples, std::int64_t heads,
                                                    std::int64_t length) {
  return 2.0 * static_cast<double>(samples) * static_cast<double>(heads) *
         static_cast<double>(length) * static_cast<double>(length);
}

/// Whether the mask may be allocated: at most a sixteenth of the GPU's memory, since more is seldom
/// free, and fewer than 2^31 elements, in case library kernels count in 32 bits.
[[nodiscard]] constexpr bool attention_mask_fits(double bytes, std::size_t memory_bytes) {
  return bytes <= static_cast<double>(memory_bytes) / 16 && bytes < 0x1p32;
}

/// mask [graph_samples, place.heads, length, length] of T, 16-byte aligned; samples from `samples`
/// on are empty. Throws if `length` is too short for a sample or no multiple of the store width.
template <class T, KernelDevice Dev>
void attention_mask(Dev& dev, const AttentionPlace& place, std::int64_t samples,
                    std::int64_t graph_samples, std::int64_t length, T* mask) {
  using Kernel = AttentionMask<T>;
  check(length % Kernel::width == 0 && length >= place.max_length && graph_samples >= samples,
        "attention: a mask of ", graph_samples, " samples of ", length, " does not fit ", samples,
        " samples of up to ", place.max_length, "; the length is a multiple of ", Kernel::width);
  const auto items = graph_samples * place.heads * length * (length / Kernel::width);
  if (items > 0) launch(dev, grid_for(items), Kernel{place, samples, graph_samples, length, mask});
}

}  // namespace dhp::cuda
