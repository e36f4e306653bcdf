// CublasProduct: descriptors, heuristics and calls of the cuBLASLt API.
#pragma once

#include <dhp/cuda/cublas_problem.hpp>
#include <dhp/device/cuda.hpp>

#include <algorithm>
#include <array>
#include <vector>

namespace dhp::detail::cuda {

using CublasDescription = CudaOwner<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using CublasLayout = CudaOwner<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;

/// The descriptors of a call. Making them needs no GPU.
class CublasProduct {
 public:
  explicit CublasProduct(const CublasCall& call)
      : how_(make_how(call)),
        left_(layout(call.in, call.product.left)),
        right_(layout(call.in, call.product.right)),
        c_(layout(call.out, call.product.c)) {
    point(call);
  }

  [[nodiscard]] cublasLtMatmulDesc_t how() const { return how_.get(); }
  [[nodiscard]] cublasLtMatrixLayout_t left() const { return left_.get(); }
  [[nodiscard]] cublasLtMatrixLayout_t right() const { return right_.get(); }
  [[nodiscard]] cublasLtMatrixLayout_t c() const { return c_.get(); }

  void point(const CublasCall& call) {
    if (call.bias != nullptr) set(how(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, call.bias);
    if (call.aux != nullptr) set(how(), CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, call.aux);
  }

 private:
  static CublasDescription make_how(const CublasCall& call) {
    cublasLtMatmulDesc_t made = nullptr;
    const bool wide = call.in == DType::f64;
    const auto compute = wide        ? CUBLAS_COMPUTE_64F
                         : call.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                     : CUBLAS_COMPUTE_32F;
    check_cublas(cublasLtMatmulDescCreate(&made, compute, wide ? CUDA_R_64F : CUDA_R_32F),
                 "cublasLtMatmulDescCreate");
    CublasDescription owner(made);
    const auto operation = [](bool transposed) -> std::int32_t {
      return transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    };
    set(made, CUBLASLT_MATMUL_DESC_TRANSA, operation(call.product.transpose_left));
    set(made, CUBLASLT_MATMUL_DESC_TRANSB, operation(call.product.transpose_right));
    if (call.sms > 0) set(made, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, call.sms);
    set(made, CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<std::uint32_t>(call.epilogue));
    if (call.bias != nullptr)
      set(made, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
          static_cast<std::int32_t>(cublas_type(call.bias_type)));
    if (call.aux != nullptr) set(made, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, call.product.c.stride);
    return owner;
  }
  static CublasLayout layout(DType type, const ColumnMajorProduct::Matrix& matrix) {
    cublasLtMatrixLayout_t made = nullptr;
    check_cublas(cublasLtMatrixLayoutCreate(
                     &made, cublas_type(type), static_cast<std::uint64_t>(matrix.rows),
                     static_cast<std::uint64_t>(matrix.columns), matrix.stride),
                 "cublasLtMatrixLayoutCreate");
    return CublasLayout(made);
  }
  static void set(cublasLtMatmulDesc_t how, cublasLtMatmulDescAttributes_t name,
                  const auto& value) {
    check_cublas(cublasLtMatmulDescSetAttribute(how, name, &value, sizeof value),
                 "cublasLtMatmulDescSetAttribute");
  }

  CublasDescription how_;
  CublasLayout left_, right_, c_;
};

struct CublasAlgorithm {
  cublasLtMatmulAlgo_t algorithm{};
  std::size_t workspace_bytes = 0;
};

inline constexpr int max_algorithms = 8;

/// Returns at most `most` of cuBLASLt's proposals, its favorite first, or none if it cannot run the product. Split-k
/// sums are added in the accumulation type, never in 16 bits.
[[nodiscard]] inline std::vector<CublasAlgorithm> algorithms(Cuda& dev, const CublasCall& call,
                                                             const CublasProduct& product,
                                                             int most) {
  cublasLtMatmulPreference_t made = nullptr;
  check_cublas(cublasLtMatmulPreferenceCreate(&made), "cublasLtMatmulPreferenceCreate");
  const CudaOwner<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> preference(made);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t name, const auto& value) {
    check_cublas(cublasLtMatmulPreferenceSetAttribute(made, name, &value, sizeof value),
                 "cublasLtMatmulPreferenceSetAttribute");
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(dev.workspace_bytes()));
  const bool wide = call.out == accumulation_type(call.in);
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<std::uint32_t>(wide ? CUBLASLT_REDUCTION_SCHEME_MASK
                                      : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  // Alignments depend on the layout, so deterministic devices tell cuBLASLt at most 16 bytes.
  const std::uint32_t max_alignment = dev.options().deterministic ? 16 : 256;
  const auto alignment = [&](const std::byte* address) {
    return std::min(alignment_of(address), max_alignment);
  };
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(call.left));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(call.right));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(call.c));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(call.c));
  // Not a vector, because nvcc 13.0 fails on destructors of unnamed structs with a typedef.
  std::array<cublasLtMatmulHeuristicResult_t, max_algorithms> results{};
  check(most <= max_algorithms, "cuBLASLt is asked for ", most, " algorithms");
  int count = 0;
  const auto code =
      cublasLtMatmulAlgoGetHeuristic(dev.cublas(), product.how(), product.left(), product.right(),
                                     product.c(), product.c(), made, most, results.data(), &count);
  std::vector<CublasAlgorithm> found;
  if (code != CUBLAS_STATUS_SUCCESS) return found;  // cuBLASLt does not support the product
  for (int at = 0; at < count; ++at) {
    const auto& result = results[as_size(at)];
    if (result.state == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= dev.workspace_bytes())
      found.push_back({result.algo, result.workspaceSize});
  }
  return found;
}

/// Returns whether the status says that cuBLASLt does not support the algorithm; in this case nothing has run.
[[nodiscard]] constexpr bool is_unsupported(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE ||
         status == CUBLAS_STATUS_ARCH_MISMATCH;
}

/// Issues the product on the device's stream. c: the output's address, with the alignment of the planned output.
[[nodiscard]] inline cublasStatus_t multiply(Cuda& dev, const CublasCall& call,
                                             const CublasProduct& product,
                                             const CublasAlgorithm& algorithm, std::byte* c) {
  const float alpha32 = static_cast<float>(call.alpha), beta32 = static_cast<float>(call.beta);
  const bool wide = call.in == DType::f64;
  const void* const alpha = wide ? static_cast<const void*>(&call.alpha) : &alpha32;
  const void* const beta = wide ? static_cast<const void*>(&call.beta) : &beta32;
  return cublasLtMatmul(dev.cublas(), product.how(), alpha, call.left, product.left(), call.right,
                        product.right(), beta, c, product.c(), c, product.c(), &algorithm.algorithm,
                        dev.workspace(), dev.workspace_bytes(), dev.stream());
}

}  // namespace dhp::detail::cuda
