// The attention dropout mask for cuDNN, from dhp's global element indices. Each pass redraws it, because keeping it
// would cost a mask per layer.
#pragma once

#include <dhp/cuda/attention_place.hpp>
#include <dhp/cuda/matrix_walk.hpp>

namespace dhp::detail::cuda {

/// mask [graph_samples, heads, length, length]: 1 for a kept probability, 0 for a dropped one or
/// padding. `groups` blocks share a head; a thread draws as many keys as one store holds. aligned:
/// the random numbers of each row start at a multiple of four, so packs are whole Philox blocks.
template <class T, bool aligned>
struct AttentionMask {
  static constexpr int width = pack_size<T>;
  static constexpr int packs_a_thread = 8;  // of long heads; they make up for the divisions
  static_assert(width == 8);
  AttentionPlace place;
  std::int64_t samples, length, groups;
  T* mask;

  template <class B>
  constexpr void operator()(B& block) const {
    const auto random = place.stream();
    const auto index = block.index() / groups;  // of the head
    const auto head = index < samples * place.heads ? place.head_of(index) : AttentionPlace::Head{};
    const auto rows = static_cast<std::uint32_t>(length);
    const auto tokens = static_cast<std::uint32_t>(head.length);
    const auto packs = rows / width;  // of a query
    const auto threads = static_cast<std::uint32_t>(block.threads());
    const auto group = static_cast<std::uint32_t>(block.index() - index * groups);
    const Pair pair{T(0.0f), T(1.0f)};
    T* const to = mask + index * length * length;
    for (MatrixWalk at(group * threads + static_cast<std::uint32_t>(block.thread()),
                       static_cast<std::uint32_t>(groups) * threads, packs);
         at.row < rows; at.next()) {
      const auto key = at.column * width;
      Pack<T, width> out;
      if (at.row < tokens && key < tokens) {
        const auto number = place.first_number(head, at.row) + key;
        fill(out, pair, words_from(random, number), tokens - key);
      } else {
        for (T& one : out.at) one = pair.dropped;
      }
      store<width>(to + (at.row * packs + at.column) * width, out);
    }
  }

 private:
  struct Pair {
    T dropped, kept;
  };
  struct Words {
    std::uint32_t at[width];
  };

  /// The words of elements number, .., number + 7 of a stream.
  static constexpr Words words_from(const RandomStream& random, std::uint64_t number) {
    const auto first = number / 4;
    const auto a = random.block(first), b = random.block(first + 1);
    if constexpr (aligned) return {a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]};
    const auto c = random.block(first + 2);
    // Two selections by bits of the shift, because registers cannot be indexed.
    const bool two = (number & 2) != 0, one = (number & 1) != 0;
    const auto by_two = [two](std::uint32_t near, std::uint32_t far) { return two ? far : near; };
    const std::uint32_t d[] = {by_two(a[0], a[2]), by_two(a[1], a[3]), by_two(a[2], b[0]),
                               by_two(a[3], b[1]), by_two(b[0], b[2]), by_two(b[1], b[3]),
                               by_two(b[2], c[0]), by_two(b[3], c[1]), by_two(c[0], c[2])};
    Words found{};
    for (int at = 0; at < width; ++at) found.at[at] = one ? d[at + 1] : d[at];
    return found;
  }
  /// The first `present` elements by their words, the rest dropped.
  constexpr void fill(Pack<T, width>& out, const Pair& pair, const Words& words,
                      std::uint32_t present) const {
    const auto most_dropped = (place.threshold << 8) - 1;  // of a word; the threshold is at least 1
    for (int at = 0; at < width; ++at)
      out.at[at] = words.at[at] > most_dropped ? pair.kept : pair.dropped;
    if (present < width)
      for (int at = 0; at < width; ++at)
        if (static_cast<std::uint32_t>(at) >= present) out.at[at] = pair.dropped;
  }
};

/// Bytes of a 16-bit mask.
[[nodiscard]] constexpr double attention_mask_bytes(std::int64_t samples, std::int64_t heads,
                                                    std::int64_t length) {
  return 2.0 * static_cast<double>(samples) * static_cast<double>(heads) *
         static_cast<double>(length) * static_cast<double>(length);
}

/// Whether a mask, or other scratch, may be allocated: at most a sixteenth of the GPU's memory, since more is seldom
/// free, and fewer than 2^31 elements, in case library kernels count in 32 bits.
[[nodiscard]] constexpr bool attention_scratch_fits(double bytes, std::size_t memory_bytes) {
  return bytes <= static_cast<double>(memory_bytes) / 16 && bytes < 0x1p32;
}

/// mask [graph_samples, place.heads, length, length] of T, 16-byte aligned; samples from `samples`
/// on are empty. The dropout is above 0. Throws if `length` is too short for a sample, too long, or
/// no multiple of the store width.
template <class T, KernelDevice Dev>
void attention_mask(Dev& dev, const AttentionPlace& place, std::int64_t samples,
                    std::int64_t graph_samples, std::int64_t length, T* mask) {
  constexpr std::int64_t width = pack_size<T>, most = 1 << 16;  // kernels count a head in 32 bits
  check(length % width == 0 && length >= place.max_length && length <= most &&
            graph_samples >= samples,
        "attention: a mask of ", graph_samples, " samples of ", length, " does not fit ", samples,
        " samples of up to ", place.max_length, "; the length is a multiple of ", width,
        " and at most ", most);
  const auto draw = [&]<bool aligned>(std::bool_constant<aligned>) {
    using Kernel = AttentionMask<T, aligned>;
    const Grid block;
    const auto share = block.threads * Kernel::packs_a_thread;
    const auto groups = (length * (length / width) + share - 1) / share;
    const auto blocks = graph_samples * place.heads * groups;
    if (blocks > 0)
      launch(dev, {blocks, block.threads}, Kernel{place, samples, length, groups, mask});
  };
  place.max_length % 4 == 0 ? draw(std::true_type()) : draw(std::false_type());
}

}  // namespace dhp::detail::cuda
