// gemm on the Cpu: Eigen's product over fixed tiles of C. The tiles depend on the shape alone, so the number
// of threads changes no bit. 16-bit matrices are multiplied as f32.
#pragma once

#include <dhp/device/cpu.hpp>
#include <dhp/ops/gemm.hpp>

#include <Eigen/Core>

#include <algorithm>
#include <vector>

namespace dhp::cpu {

/// Row-major C [m, n] = alpha op(A) [m, k] op(B) [k, n] + beta C, leading dimensions in elements; ta: A is
/// stored as [k, m]; tb: B is stored as [n, k]. beta 0 never reads C. T is float or double.
/// run shares tiles of C among the device's threads, run_serial works in the calling thread;
/// both give the same bits.
template <class T>
struct Gemm {
  static void run(Cpu& dev, bool ta, bool tb, std::int64_t m, std::int64_t n, std::int64_t k,
                  double alpha, const T* a, std::int64_t lda, const T* b, std::int64_t ldb,
                  double beta, T* c, std::int64_t ldc);
  static void run_serial(bool ta, bool tb, std::int64_t m, std::int64_t n, std::int64_t k,
                         double alpha, const T* a, std::int64_t lda, const T* b, std::int64_t ldb,
                         double beta, T* c, std::int64_t ldc);

 private:
  static constexpr std::int64_t tile_rows = 256;
  static constexpr std::int64_t tile_columns = 512;
  static void one_tile(std::int64_t tile, bool ta, bool tb, std::int64_t m, std::int64_t n,
                       std::int64_t k, double alpha, const T* a, std::int64_t lda, const T* b,
                       std::int64_t ldb, double beta, T* c, std::int64_t ldc);
  static std::int64_t tiles(std::int64_t m, std::int64_t n) {
    return ((m + tile_rows - 1) / tile_rows) * ((n + tile_columns - 1) / tile_columns);
  }
};

template <class T>
void Gemm<T>::run(Cpu& dev, bool ta, bool tb, std::int64_t m, std::int64_t n, std::int64_t k,
                  double alpha, const T* a, std::int64_t lda, const T* b, std::int64_t ldb,
                  double beta, T* c, std::int64_t ldc) {
  dev.for_tiles(tiles(m, n), [&](std::int64_t tile) {
    one_tile(tile, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  });
}

template <class T>
void Gemm<T>::run_serial(bool ta, bool tb, std::int64_t m, std::int64_t n, std::int64_t k,
                         double alpha, const T* a, std::int64_t lda, const T* b, std::int64_t ldb,
                         double beta, T* c, std::int64_t ldc) {
  for (std::int64_t tile = 0; tile < tiles(m, n); ++tile)
    one_tile(tile, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

template <class T>
void Gemm<T>::one_tile(std::int64_t tile, bool ta, bool tb, std::int64_t m, std::int64_t n,
                       std::int64_t k, double alpha, const T* a, std::int64_t lda, const T* b,
                       std::int64_t ldb, double beta, T* c, std::int64_t ldc) {
  using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using Stride = Eigen::OuterStride<>;
  using In = Eigen::Map<const Matrix, 0, Stride>;
  const auto across = (n + tile_columns - 1) / tile_columns;
  const auto row = tile / across * tile_rows;
  const auto column = tile % across * tile_columns;
  const auto rows = std::min(tile_rows, m - row);
  const auto columns = std::min(tile_columns, n - column);
  Eigen::Map<Matrix, 0, Stride> out(c + row * ldc + column, rows, columns, Stride(ldc));
  if (beta == 0) out.setZero();
  else if (beta != 1) out *= static_cast<T>(beta);
  const In left(ta ? a + row : a + row * lda, ta ? k : rows, ta ? rows : k, Stride(lda));
  const In right(tb ? b + column * ldb : b + column, tb ? columns : k, tb ? k : columns,
                 Stride(ldb));
  const T scale = static_cast<T>(alpha);
  if (ta && tb) out.noalias() += scale * left.transpose() * right.transpose();
  else if (ta) out.noalias() += scale * left.transpose() * right;
  else if (tb) out.noalias() += scale * left * right.transpose();
  else out.noalias() += scale * left * right;
}

}  // namespace dhp::cpu

namespace dhp {

inline void gemm_on(Cpu& dev, ConstView<Cpu> a, ConstView<Cpu> b, View<Cpu> c,
                    const GemmOptions& options, ConstView<Cpu> bias) {
  const auto m = c.shape()[0];
  const auto n = c.shape()[1];
  const auto k = a.shape()[options.transpose_a ? 0 : 1];
  visit_accumulator(accumulation_type(a.dtype()), [&]<class A>(Tag<A>) {
    const auto widen = [](ConstView<Cpu> x, std::vector<A>& scratch) -> const A* {
      if (x.dtype() == dtype_of<A>()) return x.data<A>();
      scratch.resize(static_cast<std::size_t>(x.count()));
      visit_floating(x.dtype(), [&]<class T>(Tag<T>) {
        const T* from = x.data<T>();
        for (std::size_t i = 0; i < scratch.size(); ++i) scratch[i] = static_cast<A>(from[i]);
      });
      return scratch.data();
    };
    std::vector<A> wide_a, wide_b, wide_c, wide_bias;
    const A* left = widen(a, wide_a);
    const A* right = widen(b, wide_b);
    A* out = nullptr;
    if (c.dtype() == dtype_of<A>()) {
      out = c.data<A>();
    } else {
      wide_c.resize(static_cast<std::size_t>(c.count()));
      if (options.beta != 0) widen(c, wide_c);
      out = wide_c.data();
    }
    cpu::Gemm<A>::run(dev, options.transpose_a, options.transpose_b, m, n, k, options.alpha, left,
                      a.shape()[1], right, b.shape()[1], options.beta, out, n);
    if (!bias.empty()) {
      const A* add = widen(bias, wide_bias);
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < n; ++j) out[i * n + j] += add[j];
    }
    if (c.dtype() != dtype_of<A>())
      visit_floating(c.dtype(), [&]<class T>(Tag<T>) {
        for (std::int64_t i = 0; i < c.count(); ++i) c.data<T>()[i] = T(out[i]);
      });
  });
}

}  // namespace dhp
