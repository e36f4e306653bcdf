// CudnnDescriptor: a descriptor of cuDNN's graph API. Setters deduce the attribute's type.
#pragma once

#include <dhp/device/cuda_libraries.hpp>

#include <cudnn_backend.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace dhp::detail::cuda {

/// Returns cuDNN's attribute type for a C++ type.
template <class T>
[[nodiscard]] constexpr cudnnBackendAttributeType_t attribute_type() {
  if constexpr (std::is_same_v<T, cudnnBackendDescriptor_t>) return CUDNN_TYPE_BACKEND_DESCRIPTOR;
  else if constexpr (std::is_same_v<T, std::byte*>) return CUDNN_TYPE_VOID_PTR;
  else if constexpr (std::is_same_v<T, std::int64_t>) return CUDNN_TYPE_INT64;
  else if constexpr (std::is_same_v<T, std::int32_t>) return CUDNN_TYPE_INT32;
  else if constexpr (std::is_same_v<T, bool>) return CUDNN_TYPE_BOOLEAN;
  else if constexpr (std::is_same_v<T, float>) return CUDNN_TYPE_FLOAT;
  else if constexpr (std::is_same_v<T, double>) return CUDNN_TYPE_DOUBLE;
  else if constexpr (std::is_same_v<T, char>) return CUDNN_TYPE_CHAR;
  else if constexpr (std::is_same_v<T, cudnnHandle_t>) return CUDNN_TYPE_HANDLE;
  else if constexpr (std::is_same_v<T, cudnnDataType_t>) return CUDNN_TYPE_DATA_TYPE;
  else if constexpr (std::is_same_v<T, cudnnConvolutionMode_t>) return CUDNN_TYPE_CONVOLUTION_MODE;
  else if constexpr (std::is_same_v<T, cudnnPointwiseMode_t>) return CUDNN_TYPE_POINTWISE_MODE;
  else if constexpr (std::is_same_v<T, cudnnReduceTensorOp_t>)
    return CUDNN_TYPE_REDUCTION_OPERATOR_TYPE;
  else if constexpr (std::is_same_v<T, cudnnRngDistribution_t>) return CUDNN_TYPE_RNG_DISTRIBUTION;
  else if constexpr (std::is_same_v<T, cudnnBackendHeurMode_t>) return CUDNN_TYPE_HEUR_MODE;
  else if constexpr (std::is_same_v<T, cudnnBackendNormMode_t>) return CUDNN_TYPE_NORM_MODE;
  else if constexpr (std::is_same_v<T, cudnnBackendNormFwdPhase_t>)
    return CUDNN_TYPE_NORM_FWD_PHASE;
  else if constexpr (std::is_same_v<T, cudnnGenStatsMode_t>) return CUDNN_TYPE_GENSTATS_MODE;
  else if constexpr (std::is_same_v<T, cudnnBackendNumericalNote_t>)
    return CUDNN_TYPE_NUMERICAL_NOTE;
  else if constexpr (std::is_same_v<T, cudnnBackendBehaviorNote_t>) return CUDNN_TYPE_BEHAVIOR_NOTE;
  else {
    static_assert(std::is_same_v<T, cudnnBackendKnobType_t>, "not a type of cuDNN's attributes");
    return CUDNN_TYPE_KNOB_TYPE;
  }
}

/// Movable, not copyable. Functions throw CudaError with cuDNN's message if an attribute does not fit.
class CudnnDescriptor {
 public:
  explicit CudnnDescriptor(cudnnBackendDescriptorType_t type) {
    check_cudnn(cudnnBackendCreateDescriptor(type, &raw_), "cudnnBackendCreateDescriptor");
  }
  CudnnDescriptor(CudnnDescriptor&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  CudnnDescriptor& operator=(CudnnDescriptor&& other) noexcept {
    std::swap(raw_, other.raw_);
    return *this;
  }
  ~CudnnDescriptor() {
    if (raw_ != nullptr) static_cast<void>(cudnnBackendDestroyDescriptor(raw_));
  }
  [[nodiscard]] cudnnBackendDescriptor_t raw() const { return raw_; }

  CudnnDescriptor& set(cudnnBackendAttributeName_t name, const auto& value) {
    return set_array(name, 1, &value);
  }
  template <class T>
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, const std::vector<T>& values) {
    return set_array(name, std::ssize(values), values.data());
  }
  /// Sets an attribute to a copy of `value`, which must be finalized.
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value) {
    return set_array(name, 1, &value.raw_);
  }
  CudnnDescriptor&& finalize(const char* what) {
    check_cudnn(cudnnBackendFinalize(raw_), what);
    return std::move(*this);
  }

  template <class T>
  [[nodiscard]] T get(cudnnBackendAttributeName_t name) const {
    const auto found = get_all<T>(name, 1);
    return found.empty() ? T{} : found.front();
  }
  /// Returns at most `most` values of an attribute.
  template <class T>
  [[nodiscard]] std::vector<T> get_all(cudnnBackendAttributeName_t name, std::int64_t most) const {
    std::vector<T> values(as_size(most));
    std::int64_t count = 0;
    check_cudnn(
        cudnnBackendGetAttribute(raw_, name, attribute_type<T>(), most, &count, values.data()),
        "cudnnBackendGetAttribute");
    values.resize(as_size(std::min(count, most)));
    return values;
  }
  /// Returns an attribute's text; empty if cuDNN has none.
  [[nodiscard]] std::string get_text(cudnnBackendAttributeName_t name) const {
    std::int64_t count = 0;
    if (cudnnBackendGetAttribute(raw_, name, CUDNN_TYPE_CHAR, 0, &count, nullptr) !=
        CUDNN_STATUS_SUCCESS)
      return {};
    const auto text = get_all<char>(name, count);
    return {text.begin(), std::find(text.begin(), text.end(), '\0')};
  }
  /// Returns at most `most` descriptors of one type, filled in by cuDNN; possibly none.
  [[nodiscard]] std::vector<CudnnDescriptor> get_descriptors(cudnnBackendAttributeName_t name,
                                                             cudnnBackendDescriptorType_t type,
                                                             std::int64_t most) const {
    std::vector<CudnnDescriptor> result;
    std::vector<cudnnBackendDescriptor_t> raw;
    for (std::int64_t at = 0; at < most; ++at) raw.push_back(result.emplace_back(type).raw());
    std::int64_t count = 0;
    check_cudnn(cudnnBackendGetAttribute(raw_, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, most, &count,
                                         raw.data()),
                "cudnnBackendGetAttribute (descriptors)");
    while (std::ssize(result) > count) result.pop_back();
    return result;
  }

 private:
  template <class Value>
  CudnnDescriptor& set_array(cudnnBackendAttributeName_t name, std::int64_t count,
                             const Value* values) {
    check_cudnn(cudnnBackendSetAttribute(raw_, name, attribute_type<Value>(), count, values),
                "cudnnBackendSetAttribute");
    return *this;
  }

  cudnnBackendDescriptor_t raw_ = nullptr;
};

}  // namespace dhp::detail::cuda
