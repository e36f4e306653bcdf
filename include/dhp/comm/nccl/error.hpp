// Translates NCCL's result codes to sentences and exceptions, and dhp's element types and reductions to NCCL's.
#pragma once

#include <dhp/comm/collective.hpp>
#include <dhp/device/cuda_error.hpp>

#include <nccl.h>

#include <string>

namespace dhp::detail {

/// Returns NCCL's text for `code`, with the detail of NCCL's last error, if any.
[[nodiscard]] inline std::string nccl_error_text(ncclResult_t code) {
  const char* const noted = ncclGetLastError(nullptr);
  const bool more = noted != nullptr && noted[0] != 0;
  return concat(ncclGetErrorString(code), " (code ", static_cast<int>(code), ")",
                more ? concat(": ", noted) : std::string());
}

/// Throws CudaError if the call has failed. Only for calls that complete before they return.
inline void check_nccl(ncclResult_t code, const char* call, CallSite where = CallSite::current()) {
  if (code != ncclSuccess) [[unlikely]]
    throw CudaError(call, static_cast<int>(code), nccl_error_text(code), where);
}

[[nodiscard]] inline ncclDataType_t nccl_type(DType type) {
  switch (type) {
    case DType::f64: return ncclFloat64;
    case DType::f32: return ncclFloat32;
    case DType::bf16: return ncclBfloat16;
    case DType::f16: return ncclFloat16;
    case DType::i64: return ncclInt64;
    case DType::i32: return ncclInt32;
    case DType::u8: return ncclUint8;
  }
  fail("NCCL has no type ", type);
}

[[nodiscard]] inline ncclRedOp_t nccl_reduction(Reduce reduce) {
  switch (reduce) {
    case Reduce::sum: return ncclSum;
    case Reduce::max: return ncclMax;
    case Reduce::min: return ncclMin;
  }
  fail("NCCL has no reduction of number ", static_cast<int>(reduce));
}

/// Throws Error if the loaded NCCL library is older than the header, or of another major version.
inline void check_nccl_version() {
  int running = 0;
  check_nccl(ncclGetVersion(&running), "ncclGetVersion");
  check_library_version("NCCL", "libnccl", NCCL_VERSION_CODE, as_size(running));
}

/// Returns a new id with which a world's ranks connect. It is a secret: any process that has it can join.
[[nodiscard]] inline ncclUniqueId new_nccl_id() {
  ncclUniqueId id;
  check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
  return id;
}

}  // namespace dhp::detail
