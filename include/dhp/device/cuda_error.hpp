// CudaError: the exception for errors of CUDA and its libraries. Each library has a function check_LIBRARY() that
// throws CudaError. Also: owners of library handles, and the check that a loaded library fits its header.
#pragma once

#include <dhp/core/error.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <source_location>
#include <string>
#include <type_traits>

namespace dhp {

class CudaError : public Error {
 public:
  CudaError(const std::string& call, int code, const std::string& text, std::source_location where)
      : Error(concat(call, " failed: ", text, " (code ", code, ")"), where), code_(code) {}
  /// Returns the library's error code.
  [[nodiscard]] int code() const noexcept { return code_; }

 private:
  int code_;
};

namespace detail {
/// Ignores an error and clears it in the CUDA runtime, for destructors.
inline void quietly(cudaError_t code) noexcept {
  if (code != cudaSuccess) static_cast<void>(cudaGetLastError());
}
/// Throws Error if the loaded library (`file`) is older than the headers or of another major version. Versions have
/// NVIDIA's encoding: 91900 is 9.19.0.
inline void check_library_version(const char* name, const char* file, std::size_t compiled,
                                  std::size_t running) {
  constexpr std::size_t major = 10000, minor = 100;
  const auto text = [](std::size_t version) {
    return concat(version / major, ".", version % major / minor, ".", version % minor);
  };
  check(running / major == compiled / major && running >= compiled, name, " ", text(running),
        " was loaded, but this program was compiled for ", text(compiled),
        ", and needs the same major version and at least that one: put the folder of the right ",
        file, " into LD_LIBRARY_PATH, or compile again");
}

/// Deleter that destroys a library's handle by calling `destroy`.
template <auto destroy>
struct CudaDestroy {
  void operator()(auto* old) const noexcept { static_cast<void>(destroy(old)); }
};
template <class Handle, auto destroy>
using CudaOwner = std::unique_ptr<std::remove_pointer_t<Handle>, CudaDestroy<destroy>>;
}  // namespace detail

/// Throws CudaError unless `code` is success; `call` names the call and its purpose. Clears the error in the runtime,
/// so that the next kernel launch does not report it again.
inline void check_cuda(cudaError_t code, const char* call,
                       std::source_location where = std::source_location::current()) {
  if (code == cudaSuccess) [[likely]]
    return;
  detail::quietly(code);
  throw CudaError(call, static_cast<int>(code), cudaGetErrorString(code), where);
}

}  // namespace dhp
