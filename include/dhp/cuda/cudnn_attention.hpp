// Attention on a GPU: cuDNN's fused kernels for bf16 and f16 without dropout, dhp's own for the rest: cuDNN numbers the
// probabilities that it drops itself, ours must not depend on the layout. Graphs are made for sizes rounded
// up, so that batches of nearly the same size share one. Rows of padding hold finite numbers; results there are 0.
#pragma once

#include <dhp/cuda/attention_layout.hpp>
#include <dhp/cuda/cublas_problem.hpp>
#include <dhp/cuda/cudnn_attention_graph.hpp>
#include <dhp/cuda/plain_attention.hpp>
#include <dhp/cuda/plan_cache.hpp>

#include <bit>
#include <concepts>

namespace dhp::cuda {

/// The graph for a batch: samples are rounded up to a power of two, the length to a multiple of 64, from 1024
/// on to an eighth of a power of two.
[[nodiscard]] inline AttentionExtents attention_extents(DType type, std::int64_t samples,
                                                        std::int64_t length, int heads,
                                                        std::int64_t columns) {
  const auto up = [](std::int64_t value) {
    return static_cast<std::int64_t>(
        std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(value, 1))));
  };
  const auto step = std::max<std::int64_t>(64, up(length) / 16);
  return {.type = cudnn_type(type),
          .samples = up(samples),
          .heads = heads,
          .length = std::max(step, (length + step - 1) / step * step),
          .head_size = columns / heads};
}

/// What both passes hand to cuDNN besides the tensors of the caller.
template <class Dev>
class CudnnAttention {
 public:
  CudnnAttention(Dev& dev, ConstView<Dev> q, const Sequences<Dev>& sequences,
                 const AttentionOptions& options)
      : rows_(q.rows()),
        samples_(sequences.lengths.count()),
        extents_(attention_extents(q.dtype(), samples_, sequences.max_length, options.heads,
                                   q.columns())),
        offsets_(sequences.offsets.template data<std::int32_t>()),
        lengths_(sequences.lengths.template data<std::int32_t>()),
        element_offsets_(dev, DType::i64, {extents_.samples + 1}),
        graph_lengths_(dev, DType::i32, {extents_.samples}),
        statistics_(dev, DType::f32, {extents_.samples * extents_.heads * extents_.length}) {
    launch(dev, grid_for(extents_.samples + 1),
           DescribeSamples{samples_, extents_.samples, q.columns(), offsets_, lengths_,
                           element_offsets_.mut().template data<std::int64_t>(),
                           graph_lengths_.mut().template data<std::int32_t>()});
  }

  /// cuDNN has kernels of these sizes, at addresses that allow 16 bytes at a time.
  [[nodiscard]] static bool fits(const AttentionOptions& options,
                                 std::initializer_list<ConstView<Dev>> views) {
    const auto& q = *views.begin();
    const auto size = q.columns() / options.heads;
    return options.dropout == 0 && size_of(q.dtype()) == 2 && size % 8 == 0 && size <= 256 &&
           std::all_of(views.begin(), views.end(),
                       [](const ConstView<Dev>& view) { return alignment_of(view.bytes()) >= 16; });
  }

  [[nodiscard]] const AttentionExtents& extents() const { return extents_; }
  [[nodiscard]] CudnnArguments arguments() const {
    using Uids = AttentionUids;
    return CudnnArguments()
        .add(Uids::offsets, element_offsets_.view().bytes())
        .add(Uids::query_lengths, graph_lengths_.view().bytes())
        .add(Uids::key_lengths, graph_lengths_.view().bytes())
        .add(Uids::statistics, statistics_.view().bytes());
  }
  [[nodiscard]] std::string text(const char* pass) const {
    const auto& e = extents_;
    return concat("attention ", pass, " ", e.type == CUDNN_DATA_HALF ? "f16" : "bf16", " samples ",
                  e.samples, " heads ", e.heads, " length ", e.length, " size ", e.head_size);
  }

  void statistics_to(Dev& dev, View<Dev> logsumexp) {
    launch(dev, grid_for(logsumexp.count()),
           StatisticsFromCudnn{rows_, extents_.heads, samples_, extents_.length, offsets_, lengths_,
                               statistics_.view().template data<float>(),
                               logsumexp.template data<float>()});
  }
  void statistics_from(Dev& dev, ConstView<Dev> logsumexp) {
    launch(dev, grid_for(statistics_.count()),
           StatisticsForCudnn{rows_, extents_.heads, samples_, extents_.samples, extents_.length,
                              offsets_, lengths_, logsumexp.template data<float>(),
                              statistics_.mut().template data<float>()});
  }

 private:
  std::int64_t rows_, samples_;
  AttentionExtents extents_;
  const std::int32_t* offsets_;
  const std::int32_t* lengths_;
  Tensor<Dev> element_offsets_, graph_lengths_, statistics_;
};

/// 0 into the rows of padding of each.
template <class Dev>
void clear_all_padding(Dev& dev, const Sequences<Dev>& sequences,
                       std::initializer_list<View<Dev>> views) {
  for (const auto& view : views)
    visit_floating(view.dtype(), [&]<class T>(Tag<T>) {
      clear_padding<T>(dev, view, sequences.offsets, sequences.lengths);
    });
}

}  // namespace dhp::cuda

namespace dhp {

template <KernelDevice Dev>
  requires std::same_as<Dev, Cuda>
void attention_forward_on(Dev& dev, ConstView<Dev> q, ConstView<Dev> k, ConstView<Dev> v,
                          const Sequences<Dev>& sequences, const AttentionOptions& options,
                          View<Dev> y, View<Dev> logsumexp) {
  using Uids = cuda::AttentionUids;
  if (q.count() == 0) return;
  if (cuda::CudnnAttention<Dev>::fits(options, {q, k, v, y})) {
    cuda::CudnnAttention<Dev> attention(dev, q, sequences, options);
    auto arguments = attention.arguments();
    arguments.add(Uids::q, q.bytes()).add(Uids::k, k.bytes()).add(Uids::v, v.bytes());
    arguments.add(Uids::y, y.bytes());
    if (dev.template kept<cuda::CudnnPlans>().run(
            dev, attention.text("forward"), {.deterministic = dev.options().deterministic},
            arguments, [&] { return cuda::attention_forward_graph(attention.extents()); })) {
      attention.statistics_to(dev, logsumexp);
      return cuda::clear_all_padding(dev, sequences, {y});
    }
  }
  cuda::plain_attention_forward(dev, q, k, v, sequences, options, y, logsumexp);
}

template <KernelDevice Dev>
  requires std::same_as<Dev, Cuda>
void attention_backward_on(Dev& dev, ConstView<Dev> dy, ConstView<Dev> q, ConstView<Dev> k,
                           ConstView<Dev> v, ConstView<Dev> y, ConstView<Dev> logsumexp,
                           const Sequences<Dev>& sequences, const AttentionOptions& options,
                           View<Dev> dq, View<Dev> dk, View<Dev> dv) {
  using Uids = cuda::AttentionUids;
  if (q.count() == 0) return;
  if (cuda::CudnnAttention<Dev>::fits(options, {q, k, v, y, dy, dq, dk, dv})) {
    cuda::CudnnAttention<Dev> attention(dev, q, sequences, options);
    const auto& e = attention.extents();
    const bool dq_sums = !dev.options().deterministic;
    const Tensor<Dev> inner_products(dev, DType::f32, {e.samples * e.heads * e.length});
    Tensor<Dev> sums;
    if (dq_sums && e.head_size % 16 == 0) sums = Tensor<Dev>(dev, DType::f32, q.shape());
    else if (dq_sums)
      sums = Tensor<Dev>(dev, DType::f32, {e.samples * e.heads * e.length, e.head_size});
    attention.statistics_from(dev, logsumexp);
    auto arguments = attention.arguments();
    arguments.add(Uids::q, q.bytes()).add(Uids::k, k.bytes()).add(Uids::v, v.bytes());
    arguments.add(Uids::y, y.bytes()).add(Uids::dy, dy.bytes());
    arguments.add(Uids::dq, dq.bytes()).add(Uids::dk, dk.bytes()).add(Uids::dv, dv.bytes());
    arguments.add(Uids::inner_products, inner_products.view().bytes());
    if (dq_sums) arguments.add(Uids::dq_sums, sums.view().bytes());
    if (dev.template kept<cuda::CudnnPlans>().run(
            dev, attention.text(dq_sums ? "backward" : "backward in order"),
            {.deterministic = !dq_sums, .workspace_bytes = std::size_t{8} << 30}, arguments,
            [&] { return cuda::attention_backward_graph(e, dq_sums); }))
      return cuda::clear_all_padding(dev, sequences, {dq, dk, dv});
  }
  cuda::plain_attention_backward(dev, dy, q, k, v, y, logsumexp, sequences, options, dq, dk, dv);
}

}  // namespace dhp
