// Batch norm and its gradient as cuDNN graph operations.
#pragma once

#include <dhp/cuda/cudnn_graph.hpp>

namespace dhp::cuda {

/// Batch norm in training: writes y and statistics [1, C, 1, 1].
struct CudnnNorm {
  CudnnTensor x, scale, shift, epsilon, mean, inv_std, y;
};
inline void batch_norm(CudnnGraph& graph, const CudnnNorm& t) {
  graph.add(CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR)
      .set(CUDNN_ATTR_OPERATION_NORM_FWD_MODE, CUDNN_BATCH_NORM)
      .set(CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_NORM_FWD_TRAINING)
      .set(CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, graph.raw(t.x))
      .set(CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, graph.raw(t.scale))
      .set(CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC, graph.raw(t.shift))
      .set(CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC, graph.raw(t.epsilon))
      .set(CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, graph.raw(t.mean))
      .set(CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC, graph.raw(t.inv_std))
      .set(CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, graph.raw(t.y))
      .finalize("a batch norm of cuDNN");
}
struct CudnnNormGradient {
  CudnnTensor dy, x, scale, mean, inv_std, dscale, dshift, dx;
};
inline void batch_norm_backward(CudnnGraph& graph, const CudnnNormGradient& t) {
  graph.add(CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR)
      .set(CUDNN_ATTR_OPERATION_NORM_BWD_MODE, CUDNN_BATCH_NORM)
      .set(CUDNN_ATTR_OPERATION_NORM_BWD_XDESC, graph.raw(t.x))
      .set(CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC, graph.raw(t.dy))
      .set(CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC, graph.raw(t.mean))
      .set(CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC, graph.raw(t.inv_std))
      .set(CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC, graph.raw(t.scale))
      .set(CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC, graph.raw(t.dscale))
      .set(CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC, graph.raw(t.dshift))
      .set(CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC, graph.raw(t.dx))
      .finalize("the gradient of a batch norm by cuDNN");
}

}  // namespace dhp::cuda
