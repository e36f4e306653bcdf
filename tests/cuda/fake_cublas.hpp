// A fake of cuBLASLt over the fake CUDA runtime. Every product has a few algorithms, numbered from 0, and all compute
// it, in f32. Their times depend on the GPU. The test sets which sizes an algorithm supports; the fake records the
// algorithms that ran. For a program without CUDA's libraries.
#pragma once

#include <tests/cuda/fake_cuda.hpp>

#include <array>

namespace fake {

/// c [rows, columns] = op(left) op(right), which sum over depth; column-major.
struct ProductSize {
  std::int64_t rows, columns, depth;
};

inline constexpr int algorithms = 3;
/// The fastest algorithm on each GPU, and the algorithms that ran there.
inline std::array<int, gpus> fastest{};
inline std::array<std::vector<int>, gpus> ran;
/// Numbers of requests: for algorithms, and for whether an algorithm supports a product.
inline std::atomic<int> proposals = 0, checks = 0;
/// The alignment of the right matrix in the last request for algorithms.
inline std::atomic<std::uint32_t> alignment_told = 0;
/// can: whether an algorithm supports a product (empty: yes). seems_to: the answer before a run (empty: the same).
using Can = std::function<bool(int algorithm, const ProductSize&)>;
inline Can can, seems_to;

struct Layout {
  cudaDataType type;
  std::int64_t rows, columns, stride;
};
struct ProductKind {
  std::array<bool, 2> transposed{};
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
};
/// If set, called instead of computing a product. adds: the product is added to c.
inline std::function<void(const ProductKind&, const Layout& left, const Layout& right,
                          const Layout& c, bool adds)>
    instead_of_product;

inline const Layout& of(cublasLtMatrixLayout_t layout) {
  return *reinterpret_cast<const Layout*>(layout);
}
inline ProductKind& of(cublasLtMatmulDesc_t kind) { return *reinterpret_cast<ProductKind*>(kind); }
inline ProductSize size_of(cublasLtMatmulDesc_t kind, cublasLtMatrixLayout_t left,
                           cublasLtMatrixLayout_t c) {
  return {of(c).rows, of(c).columns, of(kind).transposed[0] ? of(left).rows : of(left).columns};
}

/// The first word of an algorithm holds its number.
inline bool seems_able(const cublasLtMatmulAlgo_t& algorithm, const ProductSize& size) {
  const int number = static_cast<int>(algorithm.data[0]);
  if (number < 0 || number >= algorithms) return false;
  return seems_to ? seems_to(number, size) : !can || can(number, size);
}

struct Product {
  ProductSize size;
  std::array<bool, 2> transposed;
  const float *left, *right;
  float* c;
  std::int64_t left_stride, right_stride, c_stride;
  float alpha, beta;

  void compute() const {
    for (std::int64_t column = 0; column < size.columns; ++column)
      for (std::int64_t row = 0; row < size.rows; ++row) {
        float sum = 0;
        for (std::int64_t k = 0; k < size.depth; ++k)
          sum += left[transposed[0] ? k + row * left_stride : row + k * left_stride] *
                 right[transposed[1] ? column + k * right_stride : k + column * right_stride];
        auto& to = c[row + column * c_stride];
        to = alpha * sum + (beta == 0 ? 0 : beta * to);
      }
  }
};

}  // namespace fake

extern "C" {
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t,
                                        cudaDataType_t) {
  *made = reinterpret_cast<cublasLtMatmulDesc_t>(new fake::ProductKind);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t old) {
  return delete &fake::of(old), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t kind,
                                              cublasLtMatmulDescAttributes_t name,
                                              const void* value, size_t) {
  if (name == CUBLASLT_MATMUL_DESC_TRANSA || name == CUBLASLT_MATMUL_DESC_TRANSB)
    fake::of(kind).transposed[name == CUBLASLT_MATMUL_DESC_TRANSB] =
        *static_cast<const std::int32_t*>(value) == CUBLAS_OP_T;
  if (name == CUBLASLT_MATMUL_DESC_EPILOGUE)
    fake::of(kind).epilogue = *static_cast<const std::uint32_t*>(value);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t stride) {
  *made = reinterpret_cast<cublasLtMatrixLayout_t>(new fake::Layout{
      type, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns), stride});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t old) {
  return delete &fake::of(old), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) {
  return *made = nullptr, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                    cublasLtMatmulPreferenceAttributes_t name,
                                                    const void* value, size_t) {
  if (name == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES)
    fake::alignment_told = *static_cast<const std::uint32_t*>(value);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t kind,
                                              cublasLtMatrixLayout_t left, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int most,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* count) {
  ++fake::proposals;
  const auto size = fake::size_of(kind, left, c);
  *count = 0;
  for (int at = 0; at < fake::algorithms && *count < most; ++at) {
    cublasLtMatmulAlgo_t one{};
    one.data[0] = static_cast<uint64_t>(at);
    if (!fake::seems_able(one, size)) continue;
    results[*count] = {};
    results[*count].algo = one;
    ++*count;
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t kind,
                                       cublasLtMatrixLayout_t left, cublasLtMatrixLayout_t,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t,
                                       const cublasLtMatmulAlgo_t* algorithm,
                                       cublasLtMatmulHeuristicResult_t* result) {
  ++fake::checks;
  *result = {};
  return fake::seems_able(*algorithm, fake::size_of(kind, left, c)) ? CUBLAS_STATUS_SUCCESS
                                                                    : CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t kind, const void* alpha,
                              const void* left, cublasLtMatrixLayout_t left_layout,
                              const void* right, cublasLtMatrixLayout_t right_layout,
                              const void* beta, const void*, cublasLtMatrixLayout_t, void* c,
                              cublasLtMatrixLayout_t c_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void*, size_t,
                              cudaStream_t stream) {
  if (fake::instead_of_product) {
    const bool adds = *static_cast<const float*>(beta) != 0;  // low half if f64: 0 for 0 and 1
    fake::instead_of_product(fake::of(kind), fake::of(left_layout), fake::of(right_layout),
                             fake::of(c_layout), adds);
    return CUBLAS_STATUS_SUCCESS;
  }
  const auto gpu = static_cast<std::size_t>(fake::current_gpu);
  const int number = static_cast<int>(algorithm->data[0]);
  const auto size = fake::size_of(kind, left_layout, c_layout);
  fake::ran[gpu].push_back(number);
  if (fake::can && !fake::can(number, size)) return CUBLAS_STATUS_NOT_SUPPORTED;
  const fake::Product product{size,
                              fake::of(kind).transposed,
                              static_cast<const float*>(left),
                              static_cast<const float*>(right),
                              static_cast<float*>(c),
                              fake::of(left_layout).stride,
                              fake::of(right_layout).stride,
                              fake::of(c_layout).stride,
                              *static_cast<const float*>(alpha),
                              *static_cast<const float*>(beta)};
  fake::issue(stream, [product] { return [product] { product.compute(); }; });
  auto& queue = fake::of(stream);
  queue.ms = queue.ms + (number == fake::fastest[gpu] ? 1.0f : 2.0f);
  return CUBLAS_STATUS_SUCCESS;
}
}
