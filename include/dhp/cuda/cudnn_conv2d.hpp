// conv2d on a GPU: cuDNN in NHWC for f32, bf16 and f16; dhp's kernels for f64 and unsupported cases. cuDNN has no fast
// kernels that store f32 gradients of 16-bit weights. cuDNN's sums are rounded once to 16 bits, then added to dw in
// f32. The weight gradient of a 1x1 convolution with stride 1 is a matrix product, without this rounding.
#pragma once

#include <dhp/cuda/cublas_gemm.hpp>
#include <dhp/cuda/fallback_conv2d.hpp>
#include <dhp/cuda/plan_cache.hpp>

namespace dhp::detail::cuda {

/// cuDNN's names for a convolution or one of its gradients.
struct ConvolutionNames {
  const char* kind;
  const char* operation;
  cudnnBackendDescriptorType_t node;
  cudnnBackendAttributeName_t geometry, x, w, y, alpha, beta;
};

/// A convolution in cuDNN's order of dims, with contiguous channels.
struct Conv2dProblem {
  static constexpr std::int64_t x_uid = 1, w_uid = 2, y_uid = 3, sum_uid = 4, square_uid = 5,
                                onto_uid = 6, signs_uid = 7, norm_x_uid = 8, mean_uid = 9,
                                inv_std_uid = 10;
  enum class Kind { forward, backward_data, backward_filter };

  Kind kind;
  DType type;
  Dims x, w, y;
  Conv2dGeometry geometry;
  std::int64_t alignment;  ///< smallest alignment of all addresses, in bytes
  bool tf32;               ///< f32 inputs may be rounded to TF32
  bool adds = false;       ///< adds to the previous values of the result
  bool sums = false;       ///< also sums y and y^2 over rows, f32 [1, O, 1, 1] each
  bool to_norm = false;    ///< masks an input gradient by sign bits and sums it for a norm
  bool onto = false;       ///< first adds another tensor to the input gradient

  /// Takes x [N, H, W, C], w [O, K, K, C], y [N, OH, OW, O], or their gradients.
  Conv2dProblem(Kind of_kind, DType of_type, const Shape& x_shape, const Shape& w_shape,
                const Shape& y_shape, Conv2dGeometry of_geometry, std::int64_t of_alignment,
                bool may_round = false)
      : kind(of_kind),
        type(of_type),
        x(channels_second(x_shape)),
        w(channels_second(w_shape)),
        y(channels_second(y_shape)),
        geometry(of_geometry),
        alignment(of_alignment),
        tf32(of_type == DType::f32 && may_round) {}

  [[nodiscard]] CudnnGraph graph() const {
    CudnnGraph made;
    const auto argument = [&](std::int64_t uid, const Dims& extents) {
      return made.image(uid, cudnn_type(type), extents, alignment);
    };
    const auto vector = [&](std::int64_t uid, std::int64_t channels) {
      return made.image(uid, CUDNN_DATA_FLOAT, {1, channels, 1, 1}, alignment);
    };
    const auto image = to_norm ? made.inner(x, nhwc_strides(x)) : argument(x_uid, x),
               weights = argument(w_uid, w), result = argument(y_uid, y);
    const std::vector<std::int64_t> padding(2, geometry.padding), stride(2, geometry.stride);
    CudnnDescriptor convolution(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    convolution.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT)
        .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION)
        .set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, std::int64_t{2})
        .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, padding)
        .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, padding)
        .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, stride)
        .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, std::vector<std::int64_t>(2, 1))
        .finalize("the geometry of a convolution of cuDNN");
    const auto named = names();
    made.add(named.node)
        .set(named.geometry, convolution)
        .set(named.x, made.raw(image))
        .set(named.w, made.raw(weights))
        .set(named.y, made.raw(result))
        .set(named.alpha, 1.0f)
        .set(named.beta, adds ? 1.0f : 0.0f)
        .finalize(named.operation);
    if (sums) {
      const auto sum = vector(sum_uid, y[1]), squares = vector(square_uid, y[1]);
      made.add(CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR)
          .set(CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_GENSTATS_SUM_SQSUM)
          .set(CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_DATA_FLOAT)
          .set(CUDNN_ATTR_OPERATION_GENSTATS_XDESC, made.raw(result))
          .set(CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, made.raw(sum))
          .set(CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, made.raw(squares))
          .finalize("the statistics of a convolution of cuDNN");
    }
    if (to_norm) {
      auto sum = image;
      if (onto) sum = made.pointwise(CUDNN_POINTWISE_ADD, sum, argument(onto_uid, x));
      const auto signs = made.image(signs_uid, CUDNN_DATA_BOOLEAN, x, alignment);
      const auto dx = argument(x_uid, x);
      made.pointwise(CUDNN_POINTWISE_MUL, sum, signs, dx);
      made.reduce(CUDNN_REDUCE_TENSOR_ADD, dx, vector(sum_uid, x[1]));
      auto xhat =
          made.pointwise(CUDNN_POINTWISE_SUB, argument(norm_x_uid, x), vector(mean_uid, x[1]));
      xhat = made.pointwise(CUDNN_POINTWISE_MUL, xhat, vector(inv_std_uid, x[1]));
      made.reduce(CUDNN_REDUCE_TENSOR_ADD, made.pointwise(CUDNN_POINTWISE_MUL, dx, xhat),
                  vector(square_uid, x[1]));
    }
    return made;
  }
  [[nodiscard]] CudnnRules rules(bool deterministic) const {
    return {.deterministic = deterministic, .full_precision = type == DType::f32 && !tf32};
  }
  /// Returns one line that names the problem; OH and OW follow from the rest.
  [[nodiscard]] std::string text() const {
    return concat("conv2d ", names().kind, " ", type, " n ", x[0], " c ", x[1], " h ", x[2], " w ",
                  x[3], " o ", w[0], " kernel ", geometry.kernel, " stride ", geometry.stride,
                  " padding ", geometry.padding, tf32 ? " TF32" : "", adds ? " added" : "",
                  sums ? " sums" : "", to_norm ? " to norm" : "", onto ? " onto" : "", " at ",
                  alignment);
  }

 private:
  [[nodiscard]] ConvolutionNames names() const {
    switch (kind) {
      case Kind::forward:
        return {"forward",
                "a convolution of cuDNN",
                CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
      case Kind::backward_data:
        return {"backward_data",
                "a gradient of a convolution's input by cuDNN",
                CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
      case Kind::backward_filter: break;
    }
    return {"backward_filter",
            "a gradient of a convolution's weights by cuDNN",
            CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
  }
  static Dims channels_second(const Shape& shape) {
    return {shape[0], shape[3], shape[1], shape[2]};
  }
};

/// Extra work of a convolution.
template <class Dev>
struct ConvolutionExtras {
  bool adds = false;    ///< adds an input gradient to the values in x
  View<Dev> sums = {};  ///< f32 [2, channels]: sums of y and y^2, or the norm's sums; empty: none
  /// If set: adds `onto`, if not empty, to the input gradient, masks the result by this norm's ReLU and sums it.
  const NormTrace<Dev>* norm = nullptr;
  ConstView<Dev> onto = {};
};

/// Runs the problem by cuDNN; returns false if cuDNN does not support it.
template <class Dev>
[[nodiscard]] bool cudnn_convolve(Dev& dev, Conv2dProblem::Kind kind, ConstView<Dev> x,
                                  ConstView<Dev> w, ConstView<Dev> y, Conv2dGeometry geometry,
                                  const ConvolutionExtras<Dev>& extras = {}) {
  if (x.dtype() == DType::f64) return false;
  CudnnArguments arguments;
  arguments.add(Conv2dProblem::x_uid, x.bytes(), extras.adds ? x.size_bytes() : 0)
      .add(Conv2dProblem::w_uid, w.bytes())
      .add(Conv2dProblem::y_uid, y.bytes());
  // Some plans add to a norm's sums instead of overwriting them, so timing must use other memory.
  const auto updated_bytes = extras.norm != nullptr ? extras.sums.size_bytes() / 2 : 0;
  if (!extras.sums.empty())
    arguments.add(Conv2dProblem::sum_uid, extras.sums.slice(0, 1).bytes(), updated_bytes)
        .add(Conv2dProblem::square_uid, extras.sums.slice(1, 2).bytes(), updated_bytes);
  if (extras.norm != nullptr)
    arguments.add(Conv2dProblem::signs_uid, extras.norm->signs.view().bytes())
        .add(Conv2dProblem::norm_x_uid, extras.norm->x.view().bytes())
        .add(Conv2dProblem::mean_uid, extras.norm->mean.view().bytes())
        .add(Conv2dProblem::inv_std_uid, extras.norm->inv_std.view().bytes());
  if (!extras.onto.empty()) arguments.add(Conv2dProblem::onto_uid, extras.onto.bytes());
  Conv2dProblem problem(kind, x.dtype(), x.shape(), w.shape(), y.shape(), geometry,
                        arguments.alignment(), dev.options().tf32);
  problem.adds = extras.adds;
  problem.sums = !extras.sums.empty() && extras.norm == nullptr;
  problem.to_norm = extras.norm != nullptr;
  problem.onto = !extras.onto.empty();
  return dev.template cached<CudnnPlans>().run(dev, problem.text(),
                                               problem.rules(dev.options().deterministic),
                                               arguments, [&] { return problem.graph(); });
}

}  // namespace dhp::detail::cuda

namespace dhp::detail {

template <CudaItself Dev>
bool conv2d_forward_library_on(Dev& dev, ConstView<Dev> x, ConstView<Dev> w,
                               Conv2dGeometry geometry, View<Dev> y) {
  return x.count() > 0 && y.count() > 0 &&
         cuda::cudnn_convolve(dev, cuda::Conv2dProblem::Kind::forward, x, w, ConstView<Dev>(y),
                              geometry);
}

/// Returns sums only for 16-bit images, whose sums of squares in f32 are exact enough for a variance. Returns nothing
/// if channels are no multiple of 8: cuDNN has no fast kernels with sums for them. ResNet-50's first layer took
/// 1.5 ms on an H100, and 3.4 ms with sums, as much as with a separate pass over the result.
template <CudaItself Dev>
std::optional<Tensor<Dev>> conv2d_forward_with_sums_on(Dev& dev, ConstView<Dev> x, ConstView<Dev> w,
                                                       Conv2dGeometry geometry, View<Dev> y) {
  if (x.count() == 0 || y.count() == 0 || size_of(x.dtype()) != 2 || x.columns() % 8 != 0)
    return {};
  using Kind = cuda::Conv2dProblem::Kind;
  Tensor<Dev> sums(dev, DType::f32, {2, y.columns()});
  if (!cuda::cudnn_convolve<Dev>(dev, Kind::forward, x, w, ConstView<Dev>(y), geometry,
                                 {.sums = sums.mut()}))
    return {};
  return sums;
}

template <CudaItself Dev>
bool conv2d_backward_data_library_on(Dev& dev, ConstView<Dev> dy, ConstView<Dev> w,
                                     Conv2dGeometry geometry, View<Dev> dx, double beta) {
  return dx.count() > 0 && dy.count() > 0 && (beta == 0 || beta == 1) &&
         cuda::cudnn_convolve(dev, cuda::Conv2dProblem::Kind::backward_data, ConstView<Dev>(dx), w,
                              dy, geometry, {.adds = beta == 1});
}

/// Returns nothing on deterministic devices, because the order of the sums varies, and a pipeline cut between norm and
/// convolution would change the result. Returns nothing for strides above 1, for which cuDNN has no such kernels.
template <CudaItself Dev>
std::optional<Tensor<Dev>> conv2d_backward_data_to_norm_on(
    Dev& dev, ConstView<Dev> dy, ConstView<Dev> w, Conv2dGeometry geometry, ConstView<Dev> onto,
    const NormTrace<Dev>& norm, View<Dev> dx) {
  if (dev.options().deterministic || geometry.stride != 1 || dx.count() == 0 || dy.count() == 0 ||
      size_of(dx.dtype()) != 2)
    return {};
  auto sums = Tensor<Dev>::zeros(dev, DType::f32, {2, dx.columns()});
  using Kind = cuda::Conv2dProblem::Kind;
  if (!cuda::cudnn_convolve<Dev>(dev, Kind::backward_data, ConstView<Dev>(dx), w, dy, geometry,
                                 {.sums = sums.mut(), .norm = &norm, .onto = onto}))
    return {};
  return sums;
}

template <CudaItself Dev>
bool conv2d_backward_filter_library_on(Dev& dev, ConstView<Dev> x, ConstView<Dev> dy,
                                       Conv2dGeometry geometry, View<Dev> dw, double beta) {
  if (dw.count() == 0 || x.count() == 0) return false;
  if (geometry.kernel == 1 && geometry.stride == 1 && geometry.padding == 0) {
    const auto as_rows = [](const auto& view) { return view.as({view.rows(), view.columns()}); };
    gemm(dev, as_rows(dy), as_rows(x), dw.as({dy.columns(), x.columns()}),
         {.transpose_a = true, .beta = beta});
    return true;
  }
  constexpr auto kind = cuda::Conv2dProblem::Kind::backward_filter;
  if (dy.count() == 0) return false;
  if (beta == 0 && x.dtype() == dw.dtype())
    return cuda::cudnn_convolve(dev, kind, x, ConstView<Dev>(dw), dy, geometry);
  const Tensor<Dev> gradient(dev, x.dtype(), dw.shape());
  if (!cuda::cudnn_convolve(dev, kind, x, gradient.view(), dy, geometry)) return false;
  cuda::add_fresh(dev, gradient.view(), beta, dw);
  return true;
}

}  // namespace dhp::detail
