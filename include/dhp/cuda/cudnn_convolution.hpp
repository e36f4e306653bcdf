// Convolutions as cuDNN graph operations: images N, C, H, W and filters O, C, K, K, with any
// strides.
#pragma once

#include <dhp/cuda/cudnn_graph.hpp>

namespace dhp::cuda {

struct CudnnConvolution {
  std::int64_t padding = 0;
  std::int64_t stride = 1;
};

[[nodiscard]] inline CudnnDescriptor describe_convolution(const CudnnConvolution& how) {
  const std::vector<std::int64_t> padding(2, how.padding), stride(2, how.stride), dilation(2, 1);
  CudnnDescriptor made(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  return made.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT)
      .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION)
      .set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, std::int64_t{2})
      .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, padding)
      .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, padding)
      .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, stride)
      .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, dilation)
      .finalize("the geometry of a convolution of cuDNN");
}

/// y = x * w
inline void convolve(CudnnGraph& graph, const CudnnTensor& x, const CudnnTensor& w,
                     const CudnnTensor& y, CudnnConvolution how) {
  const auto convolution = describe_convolution(how);
  graph.add(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, convolution)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, graph.raw(x))
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, graph.raw(w))
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, graph.raw(y))
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 1.0f)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 0.0f)
      .finalize("a convolution of cuDNN");
}
/// dx = the input gradient
inline void convolve_backward_data(CudnnGraph& graph, const CudnnTensor& dy, const CudnnTensor& w,
                                   const CudnnTensor& dx, CudnnConvolution how) {
  const auto convolution = describe_convolution(how);
  graph.add(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, convolution)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, graph.raw(dy))
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, graph.raw(w))
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, graph.raw(dx))
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, 1.0f)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, 0.0f)
      .finalize("a gradient of a convolution's input by cuDNN");
}
/// dw = beta dw + the weight gradient
inline void convolve_backward_filter(CudnnGraph& graph, const CudnnTensor& x, const CudnnTensor& dy,
                                     const CudnnTensor& dw, CudnnConvolution how, float beta = 0) {
  const auto convolution = describe_convolution(how);
  graph.add(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, convolution)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, graph.raw(x))
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, graph.raw(dy))
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, graph.raw(dw))
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, 1.0f)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, beta)
      .finalize("a gradient of a convolution's weights by cuDNN");
}

}  // namespace dhp::cuda
