// A group of threads shares a row. A warp keeps the row in registers, if it fits; otherwise a block rereads the row
// from the cache. Each kernel is written once, with WarpRows or BlockRows as its parameter Rows.
#pragma once

#include <dhp/cuda/block.hpp>

#include <cstdint>

namespace dhp::detail::cuda {

/// One warp works on a row; each thread holds up to `packs` packs of n elements.
template <int n_, int packs>
struct WarpRows {
  static constexpr int n = n_;
  static constexpr int max_packs = packs;
  static constexpr bool in_registers = true;

  template <class A, class Dev>
  static Grid grid(const Dev& dev, std::int64_t rows, std::int64_t) {
    return grid_for(dev, rows * warp_size, 128);
  }

  static constexpr std::int64_t first(const auto& block) { return grid_thread(block) / warp_size; }
  static constexpr std::int64_t step(const auto& block) { return grid_threads(block) / warp_size; }
  static constexpr int thread(const auto& block) { return block.thread() % warp_size; }
  /// steps(): the number of a thread's packs. column(): a pack's first column; callers skip columns beyond the row.
  static constexpr int steps(const auto&, std::int64_t) { return packs; }
  static constexpr std::int64_t column(const auto& block, int pack) {
    return (pack * warp_size + thread(block)) * n;
  }
  template <class B, class A>
  static constexpr A reduce(B& block, A value) {
    return warp_reduce(block, value);
  }
  /// A thread's part of a row.
  template <class T>
  class Row {
   public:
    constexpr Row(const auto& block, const T* from, std::int64_t columns) {
      for (int pack = 0; pack < packs; ++pack)
        if (const auto at = column(block, pack); at < columns) kept_[pack] = load<n>(from + at);
    }
    /// Fills a row from make(pack) and stores it.
    constexpr Row(const auto& block, T* to, std::int64_t columns, const auto& make) {
      for (int pack = 0; pack < packs; ++pack) {
        const auto at = column(block, pack);
        if (at >= columns) continue;
        kept_[pack] = make(pack);
        store<n>(to + at, kept_[pack]);
      }
    }
    constexpr Pack<T, n> get(const auto&, int pack) const { return kept_[pack]; }

   private:
    Pack<T, n> kept_[packs]{};
  };
};

/// One block of at most eight warps works on a row of any length.
template <int n_>
struct BlockRows {
  static constexpr int n = n_;
  static constexpr bool in_registers = false;

  template <class A, class Dev>
  static Grid grid(const Dev& dev, std::int64_t rows, std::int64_t columns) {
    auto grid = grid_for(dev, rows, 1);
    const std::int64_t warps = (columns / n + warp_size - 1) / warp_size;
    grid.threads = static_cast<int>(std::clamp<std::int64_t>(warps, 1, 8)) * warp_size;
    grid.shared_bytes = sizeof(A) * block_reduce_scratch;
    return grid;
  }

  static constexpr std::int64_t first(const auto& block) { return block.index(); }
  static constexpr std::int64_t step(const auto& block) { return block.blocks(); }
  static constexpr int thread(const auto& block) { return block.thread(); }
  static constexpr int steps(const auto& block, std::int64_t columns) {
    const std::int64_t packs = columns / n;
    return static_cast<int>((packs + block.threads() - 1) / block.threads());
  }
  static constexpr std::int64_t column(const auto& block, int pack) {
    return (std::int64_t{pack} * block.threads() + block.thread()) * n;
  }
  template <class B, class A>
  static constexpr A reduce(B& block, A value) {
    return block_reduce(block, value, block.template shared<A>());
  }
  template <class T>
  class Row {
   public:
    constexpr Row(const auto&, const T* from, std::int64_t) : from_(from) {}
    constexpr Row(const auto& block, T* to, std::int64_t columns, const auto& make) : from_(to) {
      for (int pack = 0; pack < steps(block, columns); ++pack)
        if (const auto at = column(block, pack); at < columns) store<n>(to + at, make(pack));
    }
    constexpr Pack<T, n> get(const auto& block, int pack) const {
      return load<n>(from_ + column(block, pack));
    }

   private:
    const T* from_;
  };
};

/// Calls body with the type Rows that fits the columns and the alignment of `pointers`. A pack is 16 bytes of the
/// accumulation type, which is the type of per-column vectors.
template <class T, class Body, class... Element>
void with_rows(std::int64_t columns, const Body& body, const Element*... pointers) {
  constexpr int n = pack_size<Accumulator<T>>;
  if (!packs_fit<n>(columns, pointers...)) body(BlockRows<1>());
  else if (const auto packs = (columns / n + warp_size - 1) / warp_size; packs <= 1)
    body(WarpRows<n, 1>());
  else if (packs <= 2) body(WarpRows<n, 2>());
  else if (packs <= 4) body(WarpRows<n, 4>());
  else if (packs <= 6) body(WarpRows<n, 6>());
  else if (packs <= 8) body(WarpRows<n, 8>());
  else body(BlockRows<n>());
}

/// Launches Kernel<T, Rows>{arguments} with the type Rows that with_rows() chooses for `columns` and `pointers`.
template <template <class T, class Rows> class Kernel, class T, KernelDevice Dev, class Arguments,
          class... Element>
void launch_rows(Dev& dev, std::int64_t rows, std::int64_t columns, const Arguments& arguments,
                 const Element*... pointers) {
  if (rows == 0 || columns == 0) return;
  with_rows<T>(
      columns,
      [&]<class Rows>(Rows) {
        launch(dev, Rows::template grid<Accumulator<T>>(dev, rows, columns),
               Kernel<T, Rows>{arguments});
      },
      pointers...);
}

}  // namespace dhp::detail::cuda
