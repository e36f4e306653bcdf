// CUDA's runtime, cuBLASLt and cuDNN for a dry run: nothing is computed, and what is issued is written into the ledger
// with the bytes and FLOP that its descriptors tell. The libraries accept everything, with one algorithm each, so that
// nothing is timed.
#include "ledger.hpp"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <cstdlib>
#include <cstring>

namespace {

/// What the host reads back, such as the losses, is small.
constexpr std::size_t small = 1 << 16;

double size_of(cudaDataType type) { return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2; }

struct Layout {
  double rows, columns, element;
  [[nodiscard]] double bytes() const { return rows * columns * element; }
};
struct Product {
  bool left_transposed = false;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
};
const Layout& of(cublasLtMatrixLayout_t layout) { return *reinterpret_cast<const Layout*>(layout); }
Product& of(cublasLtMatmulDesc_t product) { return *reinterpret_cast<Product*>(product); }

const char* name_of(std::uint32_t epilogue) {
  switch (epilogue) {
    case CUBLASLT_EPILOGUE_BIAS: return "product + bias";
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS: return "product + bias + GELU";
    case CUBLASLT_EPILOGUE_DGELU: return "product + GELU's gradient";
    case CUBLASLT_EPILOGUE_DGELU_BGRAD: return "product + gradients of GELU and bias";
    case CUBLASLT_EPILOGUE_BGRADA:
    case CUBLASLT_EPILOGUE_BGRADB: return "product + bias gradient";
    case CUBLASLT_EPILOGUE_DEFAULT: return "product";
    default: return "product + another epilogue";
  }
}
/// Whether the epilogue writes, or its gradient reads, a matrix like c.
bool has_aux(std::uint32_t epilogue) { return (epilogue & 128) != 0; }

}  // namespace

extern "C" {
cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  std::memset(properties, 0, sizeof *properties);
  std::strcpy(properties->name, "a GPU like an H200, dry");
  properties->major = 9;
  properties->multiProcessorCount = 132;
  properties->sharedMemPerBlockOptin = std::size_t{227} << 10;
  properties->totalGlobalMem = std::size_t{139} << 30;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  return *value = 0, cudaSuccess;
}
const char* cudaGetErrorString(cudaError_t) { return "an error"; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaMallocHost(void** to, size_t bytes) {
  return *to = std::aligned_alloc(256, (bytes + 255) / 256 * 256), cudaSuccess;
}
cudaError_t cudaFreeHost(void* old) { return std::free(old), cudaSuccess; }
cudaError_t cudaMalloc(void** to, size_t bytes) {
  return *to = dry::ledger().allocate(bytes), cudaSuccess;
}
cudaError_t cudaFree(void* old) {
  return dry::ledger().free(static_cast<std::byte*>(old)), cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return *free = *total = std::size_t{139} << 30, cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t) {
  const bool reads = dry::ledger().tensor_of(from) != nullptr,
             writes = dry::ledger().tensor_of(to) != nullptr;
  dry::ledger().add(reads && writes ? "copy"
                    : reads         ? "copy to the host"
                                    : "copy from the host",
                    static_cast<double>(bytes) * (reads + writes));
  if (bytes <= small) std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t) {
  dry::ledger().add("fill with zeros", static_cast<double>(bytes));
  if (bytes <= small) std::memset(to, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* made, unsigned) {
  return *made = reinterpret_cast<cudaStream_t>(std::malloc(1)), cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t old) { return std::free(old), cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  return cudaErrorNotSupported;
}
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t*) { return cudaErrorNotSupported; }
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  return *status = cudaStreamCaptureStatusNone, cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaGraphInstantiate(cudaGraphExec_t*, cudaGraph_t, unsigned long long) {
  return cudaErrorNotSupported;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) { return cudaErrorNotSupported; }
cudaError_t cudaGraphDestroy(cudaGraph_t) { return cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) { return cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* made, unsigned) {
  return *made = reinterpret_cast<cudaEvent_t>(std::malloc(1)), cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t old) { return std::free(old), cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t) {
  return *ms = 1, cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t* made) {
  return *made = nullptr, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }
const char* cublasLtGetStatusString(cublasStatus_t) { return "an error"; }
size_t cublasLtGetVersion() { return CUBLAS_VERSION; }
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t,
                                        cudaDataType_t) {
  return *made = reinterpret_cast<cublasLtMatmulDesc_t>(new Product), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t old) {
  return delete &of(old), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product,
                                              cublasLtMatmulDescAttributes_t name,
                                              const void* value, size_t) {
  if (name == CUBLASLT_MATMUL_DESC_TRANSA)
    of(product).left_transposed = *static_cast<const std::int32_t*>(value) == CUBLAS_OP_T;
  if (name == CUBLASLT_MATMUL_DESC_EPILOGUE)
    of(product).epilogue = *static_cast<const std::uint32_t*>(value);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t) {
  *made = reinterpret_cast<cublasLtMatrixLayout_t>(
      new Layout{static_cast<double>(rows), static_cast<double>(columns), size_of(type)});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t old) {
  return delete &of(old), CUBLAS_STATUS_SUCCESS;
}
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
                                              cublasLtMatmulPreference_t, int,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* count) {
  return results[0] = {}, *count = 1, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                       const cublasLtMatmulAlgo_t*,
                                       cublasLtMatmulHeuristicResult_t* result) {
  return *result = {}, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t how, const void*, const void*,
                              cublasLtMatrixLayout_t left, const void*,
                              cublasLtMatrixLayout_t right, const void* beta, const void*,
                              cublasLtMatrixLayout_t, void*, cublasLtMatrixLayout_t to,
                              const cublasLtMatmulAlgo_t*, void*, size_t, cudaStream_t) {
  const auto& product = of(how);
  const auto& c = of(to);
  const double depth = product.left_transposed ? of(left).rows : of(left).columns;
  const bool reads_c = *static_cast<const float*>(beta) != 0;  // of f64 the low half: 0 for 0 and 1
  const double aux = has_aux(product.epilogue) ? c.bytes() : 0;
  dry::ledger().add(std::string("cuBLASLt ") + name_of(product.epilogue),
                    of(left).bytes() + of(right).bytes() + c.bytes() * (reads_c ? 2 : 1) + aux,
                    2 * c.rows * c.columns * depth);
  return CUBLAS_STATUS_SUCCESS;
}
}
