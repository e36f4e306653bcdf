// CudnnGraph: operations that cuDNN fuses. Building a graph needs no GPU; cudnn_plan.hpp compiles it.
#pragma once

#include <dhp/core/types.hpp>
#include <dhp/cuda/cudnn_descriptor.hpp>

#include <array>
#include <deque>
#include <optional>

namespace dhp::detail::cuda {

[[nodiscard]] inline cudnnDataType_t cudnn_type(DType type) {
  switch (type) {
    case DType::f64: return CUDNN_DATA_DOUBLE;
    case DType::f32: return CUDNN_DATA_FLOAT;
    case DType::bf16: return CUDNN_DATA_BFLOAT16;
    case DType::f16: return CUDNN_DATA_HALF;
    case DType::i64: return CUDNN_DATA_INT64;
    case DType::i32: return CUDNN_DATA_INT32;
    case DType::u8: return CUDNN_DATA_UINT8;
  }
  fail("cuDNN has no such element type");
}

/// All tensors have four dims: N, C, H, W for images; N, heads, rows, columns for attention.
using Dims = std::array<std::int64_t, 4>;

/// Returns strides of images with contiguous channels, or of filters [O, K, K, C] seen as O, C, K, K.
[[nodiscard]] constexpr Dims nhwc_strides(const Dims& extents) {
  const auto [n, c, h, w] = extents;
  static_cast<void>(n);
  return {c * h * w, 1, c * w, c};
}
[[nodiscard]] constexpr Dims dense_strides(const Dims& extents) {
  return {extents[1] * extents[2] * extents[3], extents[2] * extents[3], extents[3], 1};
}

/// A tensor of the graph. A uid below CudnnGraph::first_own is an argument's.
struct CudnnTensor {
  std::int64_t uid = -1;
  Dims extents{}, strides{};
};

/// Tensors i32 [N, 1, 1, 1] with the number of each sample's valid rows, columns or depth.
struct CudnnLengths {
  std::optional<CudnnTensor> rows{}, columns{}, depth{};
};

class CudnnGraph {
 public:
  /// The first uid of intermediate tensors and constants.
  static constexpr std::int64_t first_own = 1000;
  struct Scalar {
    std::int64_t uid;
    float value;
  };

  /// Adds an argument. alignment: of its address, in bytes. ragged_offset: a tensor with the start of each sample.
  CudnnTensor argument(std::int64_t uid, cudnnDataType_t type, const Dims& extents,
                       const Dims& strides, std::int64_t alignment = 16,
                       const std::optional<CudnnTensor>& ragged_offset = {}) {
    return keep(uid, describe(uid, type, extents, strides, alignment, ragged_offset), extents,
                strides);
  }
  /// Adds an argument with contiguous channels.
  CudnnTensor image(std::int64_t uid, cudnnDataType_t type, const Dims& extents,
                    std::int64_t alignment) {
    return argument(uid, type, extents, nhwc_strides(extents), alignment);
  }
  /// Adds an intermediate tensor, which never goes through memory.
  CudnnTensor inner(const Dims& extents, const Dims& strides,
                    cudnnDataType_t type = CUDNN_DATA_FLOAT,
                    const std::optional<CudnnTensor>& ragged_offset = {}) {
    const auto uid = next_++;
    auto descriptor = describe(uid, type, extents, strides, 16, ragged_offset);
    descriptor.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, true);
    return keep(uid, std::move(descriptor), extents, strides);
  }
  CudnnTensor inner_like(const CudnnTensor& other, cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    return inner(other.extents, other.strides, type);
  }
  /// Adds a constant.
  CudnnTensor scalar(float value) {
    const auto uid = next_++;
    const Dims one{1, 1, 1, 1};
    auto descriptor = describe(uid, CUDNN_DATA_FLOAT, one, one);
    descriptor.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, true);
    scalars_.push_back({uid, value});
    return keep(uid, std::move(descriptor), one, one);
  }

  /// Adds y = mode(x), y = mode(x, b) or, for a selection, y = `choice` ? x : b. axis is only for GEN_INDEX.
  void pointwise(cudnnPointwiseMode_t mode, const CudnnTensor& x,
                 const std::optional<CudnnTensor>& b, const CudnnTensor& y,
                 cudnnDataType_t precision = CUDNN_DATA_FLOAT,
                 const std::optional<CudnnTensor>& choice = {},
                 const std::optional<std::int64_t>& axis = {}) {
    CudnnDescriptor function(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    function.set(CUDNN_ATTR_POINTWISE_MODE, mode).set(CUDNN_ATTR_POINTWISE_MATH_PREC, precision);
    if (axis) function.set(CUDNN_ATTR_POINTWISE_AXIS, *axis);
    function.finalize("a pointwise function of cuDNN");
    auto& node = add(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    node.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, function)
        .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, raw(x))
        .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, raw(y));
    if (b) node.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, raw(*b));
    if (choice) node.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, raw(*choice));
    node.finalize("a pointwise operation of cuDNN");
  }

  /// Adds a pointwise operation whose result is a new f32 tensor like x.
  CudnnTensor pointwise(cudnnPointwiseMode_t mode, const CudnnTensor& x,
                        const std::optional<CudnnTensor>& b = {}) {
    auto y = inner_like(x);
    pointwise(mode, x, b, y);
    return y;
  }

  /// Adds y = x reduced over the dims in which y has extent 1.
  void reduce(cudnnReduceTensorOp_t how, const CudnnTensor& x, const CudnnTensor& y) {
    CudnnDescriptor reduction(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    reduction.set(CUDNN_ATTR_REDUCTION_OPERATOR, how)
        .set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT)
        .finalize("a reduction of cuDNN");
    add(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)
        .set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, reduction)
        .set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, raw(x))
        .set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, raw(y))
        .finalize("a reduction of cuDNN");
  }

  /// Adds c = a b over the last two dims. padding: elements beyond the lengths count as 0.
  void multiply(const CudnnTensor& a, const CudnnTensor& b, const CudnnTensor& c,
                const CudnnLengths& lengths = {}, bool padding = false) {
    CudnnDescriptor product(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    product.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
    if (padding) product.set(CUDNN_ATTR_MATMUL_PADDING_VALUE, 0.0);
    product.finalize("a matrix product of cuDNN");
    auto& node = add(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    node.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, product)
        .set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, raw(a))
        .set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, raw(b))
        .set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, raw(c));
    if (lengths.rows)
      node.set(CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, raw(*lengths.rows));
    if (lengths.columns)
      node.set(CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, raw(*lengths.columns));
    if (lengths.depth)
      node.set(CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, raw(*lengths.depth));
    node.finalize("a matrix product of cuDNN");
  }
  /// Adds an intermediate tensor of random numbers: 1 with `probability`, else 0. seed and offset: i64 [1, 1, 1, 1].
  CudnnTensor bernoulli(const CudnnTensor& seed, const CudnnTensor& offset, double probability,
                        const Dims& extents) {
    const auto y = inner(extents, dense_strides(extents));
    CudnnDescriptor numbers(CUDNN_BACKEND_RNG_DESCRIPTOR);
    numbers.set(CUDNN_ATTR_RNG_DISTRIBUTION, CUDNN_RNG_DISTRIBUTION_BERNOULLI)
        .set(CUDNN_ATTR_RNG_BERNOULLI_DIST_PROBABILITY, probability)
        .finalize("random numbers of cuDNN");
    add(CUDNN_BACKEND_OPERATION_RNG_DESCRIPTOR)
        .set(CUDNN_ATTR_OPERATION_RNG_YDESC, raw(y))
        .set(CUDNN_ATTR_OPERATION_RNG_DESC, numbers)
        .set(CUDNN_ATTR_OPERATION_RNG_SEED, raw(seed))
        .set(CUDNN_ATTR_OPERATION_RNG_OFFSET_DESC, raw(offset))
        .finalize("random numbers of cuDNN");
    return y;
  }
  /// Adds a view y of x's elements with other extents and strides.
  void reshape(const CudnnTensor& x, const CudnnTensor& y) {
    add(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR)
        .set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, raw(x))
        .set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, raw(y))
        .finalize("a reshape of cuDNN");
  }

  /// For other headers: add() adds a node, which the caller must describe and finalize; raw() finds a descriptor.
  CudnnDescriptor& add(cudnnBackendDescriptorType_t type) { return nodes_.emplace_back(type); }
  [[nodiscard]] const CudnnDescriptor& raw(const CudnnTensor& tensor) const {
    for (const auto& one : tensors_)
      if (one.uid == tensor.uid) return one.descriptor;
    fail("tensor ", tensor.uid, " is of another graph");
  }

  [[nodiscard]] std::vector<cudnnBackendDescriptor_t> operations() const {
    std::vector<cudnnBackendDescriptor_t> all;
    for (const auto& node : nodes_) all.push_back(node.raw());
    return all;
  }
  [[nodiscard]] const std::vector<Scalar>& scalars() const { return scalars_; }

 private:
  CudnnDescriptor describe(std::int64_t uid, cudnnDataType_t type, const Dims& extents,
                           const Dims& strides, std::int64_t alignment = 16,
                           const std::optional<CudnnTensor>& ragged_offset = {}) const {
    CudnnDescriptor result(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    result.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, uid)
        .set(CUDNN_ATTR_TENSOR_DATA_TYPE, type)
        .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, alignment)
        .set(CUDNN_ATTR_TENSOR_DIMENSIONS, std::vector(extents.begin(), extents.end()))
        .set(CUDNN_ATTR_TENSOR_STRIDES, std::vector(strides.begin(), strides.end()));
    if (ragged_offset) result.set(CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, raw(*ragged_offset));
    return result;
  }
  CudnnTensor keep(std::int64_t uid, CudnnDescriptor descriptor, const Dims& extents,
                   const Dims& strides) {
    descriptor.finalize("a tensor of cuDNN");
    tensors_.push_back({uid, std::move(descriptor)});
    return {uid, extents, strides};
  }
  struct Numbered {
    std::int64_t uid;
    CudnnDescriptor descriptor;
  };
  std::int64_t next_ = first_own;
  std::vector<Numbered> tensors_;
  std::deque<CudnnDescriptor> nodes_;  // references stay valid
  std::vector<Scalar> scalars_;
};

}  // namespace dhp::detail::cuda
