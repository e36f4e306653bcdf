// cuBLASLt beside a fake of CUDA's runtime: every product can be done by a few algorithms, numbered from 0, none of which
// computes anything. What each takes depends on the GPU, and what has run is kept. For one program without CUDA's
// libraries.
#pragma once

#include <tests/cuda/fake_cuda.hpp>

#include <algorithm>
#include <array>
#include <vector>

namespace fake {

inline constexpr int algorithms = 3;
/// The algorithm that is the fastest on a GPU, and those that it has run.
inline std::array<int, gpus> fastest{};
inline std::array<std::vector<int>, gpus> ran;

}  // namespace fake

extern "C" {
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t,
                                        cudaDataType_t) {
  return *made = nullptr, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t,
                                              const void*, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType, uint64_t,
                                          uint64_t, int64_t) {
  return *made = nullptr, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) {
  return *made = nullptr, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                    cublasLtMatmulPreferenceAttributes_t,
                                                    const void*, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int most,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* count) {
  *count = std::min(most, fake::algorithms);
  for (int at = 0; at < *count; ++at) {
    results[at] = {};
    results[at].algo.data[0] = static_cast<uint64_t>(at);
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                       const cublasLtMatmulAlgo_t*,
                                       cublasLtMatmulHeuristicResult_t* result) {
  return *result = {}, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t, const void*, const void*,
                              cublasLtMatrixLayout_t, const void*, cublasLtMatrixLayout_t,
                              const void*, const void*, cublasLtMatrixLayout_t, void*,
                              cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t* algorithm, void*,
                              size_t, cudaStream_t stream) {
  const auto gpu = static_cast<std::size_t>(fake::current_gpu);
  const int number = static_cast<int>(algorithm->data[0]);
  fake::ran[gpu].push_back(number);
  auto& queue = fake::of(stream);
  queue.ms = queue.ms + (number == fake::fastest[gpu] ? 1.0f : 2.0f);
  return CUBLAS_STATUS_SUCCESS;
}
}
