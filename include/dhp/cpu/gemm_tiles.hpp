// The gemm microkernel of Intel's AMX-BF16: an instruction multiplies 16 rows of 32 elements with 16 columns and adds
// the products to 16 x 16 sums in a tile register (Intel 64 and IA-32 Architectures Software Developer's Manual, volume
// 2, TDPBF16PS). For each sum it adds the products of even and of odd elements apart, in ascending order from 0, and
// then both to the sum.
#pragma once

#include <dhp/cpu/gemm_kernel.hpp>

#include <initializer_list>

namespace dhp::detail::cpu {

/// Register blocking: 2 x 2 tiles of sums, in tmm0 to tmm3. Tiles of A are in tmm4 and tmm5, tiles of B in tmm6 and
/// tmm7. Each tile has 16 rows of 64 bytes.
struct Tiled : Registers<64, 32> {};

/// Prepares the calling thread for products with R, and restores it.
template <class R>
struct Prepared {};
#if defined(__x86_64__) && defined(__FMA__)
template <>
struct Prepared<Tiled> : NonCopyable {
  Prepared() {
    struct {
      std::uint8_t palette = 1, first_row = 0, reserved[14] = {};
      std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } const shapes;
    asm volatile("ldtilecfg %0" ::"m"(shapes));
  }
  ~Prepared() { asm volatile("tilerelease"); }
};

/// Rounds rows of sums to bf16 and writes them; see Target::rounded.
[[gnu::target("avx512f,avx512bf16")]] inline void store_rounded(
    const typename Vector<float, Tiled>::type (*sums)[2], const Target<float>& to, int rows,
    int columns) {
  typedef std::uint16_t Halves __attribute__((vector_size(64)));
  float padded[32] = {};
  const float* bias = to.bias;
  if (bias != nullptr && columns < 32) {
    std::memcpy(padded, bias, as_size(columns) * sizeof(float));
    bias = padded;
  }
  for (int i = 0; i < rows; ++i) {
    auto low = sums[i][0] * to.alpha, high = sums[i][1] * to.alpha, more = low;
    keep_product(low);
    keep_product(high);
    const float* const old = to.beta != 0 ? to.c + to.rows[i] : nullptr;
    for (const float* from : {old, bias})
      if (from != nullptr) {
        std::memcpy(&more, from, sizeof more);
        low += more;
        std::memcpy(&more, from + 16, sizeof more);
        high += more;
      }
    Halves halves;
    asm("vcvtne2ps2bf16 %1, %2, %0" : "=v"(halves) : "v"(low), "v"(high));
    auto* const out = reinterpret_cast<std::byte*>(to.rounded + to.places[i]);
    if (columns == 32) std::memcpy(out, &halves, sizeof halves);
    else std::memcpy(out, &halves, as_size(columns) * sizeof(bf16));
  }
}

[[gnu::target("avx512f,amx-tile,amx-bf16")]] inline void multiply_panel(
    Tiled, Runs<TilePair> a, const TilePair* b, const Target<float>& to, int valid_rows,
    int valid_columns, Prefetch&) {
  using P = Panel<TilePair, Tiled>;
  constexpr std::int64_t line = P::columns * sizeof(TilePair);
  int prefetched = 0;  // rows of C
  const bool low = valid_rows > 16, right = valid_columns > 16;
  asm volatile("tilezero %tmm0; tilezero %tmm1; tilezero %tmm2; tilezero %tmm3");
  for (auto [upper, lower, stride, step, length] : a) {
    const std::int64_t between = stride * std::int64_t{sizeof(TilePair)};
    for (; length > 0; length -= P::unit, b += P::unit * P::columns) {
      asm volatile("tileloadd (%0, %1), %%tmm4" ::"r"(upper), "r"(between) : "memory");
      asm volatile("tileloaddt1 (%0, %1), %%tmm6" ::"r"(b), "r"(line) : "memory");
      asm volatile("tdpbf16ps %tmm6, %tmm4, %tmm0");
      if (right) {
        asm volatile("tileloaddt1 (%0, %1), %%tmm7" ::"r"(b + P::width), "r"(line) : "memory");
        asm volatile("tdpbf16ps %tmm7, %tmm4, %tmm1");
      }
      if (low) {
        asm volatile("tileloadd (%0, %1), %%tmm5" ::"r"(lower), "r"(between) : "memory");
        asm volatile("tdpbf16ps %tmm6, %tmm5, %tmm2");
        if (right) asm volatile("tdpbf16ps %tmm7, %tmm5, %tmm3");
      }
      for (const int end = std::min(prefetched + 4, valid_rows); prefetched < end; ++prefetched)
        if (to.rounded == nullptr) {
          __builtin_prefetch(to.c + to.rows[prefetched], 1);
          __builtin_prefetch(to.c + to.rows[prefetched] + P::width, 1);
        } else __builtin_prefetch(to.rounded + to.places[prefetched], 1);
      upper += P::unit;
      lower += P::unit;
    }
  }
  typename Vector<float, Tiled>::type sums[2][16][2];
  asm volatile("tilestored %%tmm0, (%0, %1)" ::"r"(&sums[0][0][0]), "r"(line) : "memory");
  asm volatile("tilestored %%tmm1, (%0, %1)" ::"r"(&sums[0][0][1]), "r"(line) : "memory");
  asm volatile("tilestored %%tmm2, (%0, %1)" ::"r"(&sums[1][0][0]), "r"(line) : "memory");
  asm volatile("tilestored %%tmm3, (%0, %1)" ::"r"(&sums[1][0][1]), "r"(line) : "memory");
  if (to.rounded != nullptr) return store_rounded(&sums[0][0], to, valid_rows, valid_columns);
  auto half = to;
  for (int i = 0; i < valid_rows; i += 16, half.rows += 16) {
    const int rows = std::min(valid_rows - i, 16);
    store_half<0, float, Tiled, 16>(sums[i / 16], half, rows, valid_columns);
    store_half<1, float, Tiled, 16>(sums[i / 16], half, rows, valid_columns);
  }
}
#endif

}  // namespace dhp::detail::cpu
