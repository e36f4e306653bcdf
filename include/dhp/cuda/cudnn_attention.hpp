// Attention on a GPU: cuDNN's fused kernels for bf16 and f16 without dropout, dhp's kernels for the rest. Graphs are
// built for rounded-up sizes, so that similar batches share one graph. Padding rows must hold finite numbers; their
// results are 0. With CudaOptions::library_dropout, cuDNN also runs both passes with dropout, or an Error says why it
// cannot.
#pragma once

#include <dhp/cuda/attention_engines.hpp>
#include <dhp/cuda/attention_layout.hpp>
#include <dhp/cuda/cublas_problem.hpp>
#include <dhp/cuda/plan_cache.hpp>
#include <dhp/device/memory_count.hpp>

#include <bit>

namespace dhp::detail::cuda {

/// Returns the problem with rounded sizes: samples up to a power of two, length up to a multiple of 64 or, above 1024,
/// of an eighth of the power of two below it.
[[nodiscard]] inline AttentionProblem attention_problem(DType type, std::int64_t samples,
                                                        std::int64_t length, int heads,
                                                        std::int64_t columns, double dropout = 0) {
  const auto up = [](std::int64_t value) {
    return static_cast<std::int64_t>(
        std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(value, 1))));
  };
  return {.type = cudnn_type(type),
          .samples = up(samples),
          .heads = heads,
          .length = size_class(length, 64),
          .head_size = columns / heads,
          .dropout = dropout};
}
template <class Dev>
[[nodiscard]] AttentionProblem attention_problem(ConstView<Dev> q, const Sequences<Dev>& sequences,
                                                 const AttentionOptions& options) {
  auto problem = attention_problem(q.dtype(), sequences.lengths.count(), sequences.max_length,
                                   options.heads, q.columns(), options.dropout);
  problem.row_stride = options.row_stride;
  problem.key_heads = options.sharing() > 1 ? options.key_heads : 0;
  problem.causal = options.causal;
  return problem;
}
/// Returns whether cuDNN may run attention: only with a 16-bit type, and dropout only with library_dropout.
[[nodiscard]] inline bool is_for_cudnn(const Cuda& dev, DType type, double dropout) {
  return size_of(type) == 2 && (dropout == 0 || dev.options().library_dropout);
}
/// Throws Error if the refused pass has dropout, because no other kernel has cuDNN's random numbers.
inline void check_another_can(const AttentionProblem& problem, const std::string& text) {
  check(problem.dropout == 0, "cuDNN cannot do ", text,
        "; run without its random numbers for dropout (--library-dropout, "
        "CudaOptions::library_dropout)");
}

/// Returns the device's plans, or null if cuDNN does not support the sizes or addresses, if it has refused `problem`
/// earlier, or if the gradients' scratch does not fit.
template <class Dev>
[[nodiscard]] CudnnPlans* plans_for_attention(Dev& dev, const AttentionProblem& problem,
                                              const std::string& text,
                                              std::initializer_list<ConstView<Dev>> views,
                                              double gradient_bytes = 0) {
  const auto fits = [](const ConstView<Dev>& view) { return alignment_of(view.bytes()) >= 16; };
  if (problem.head_size % 8 != 0 || problem.head_size > 256 || problem.row_stride % 8 != 0 ||
      !std::all_of(views.begin(), views.end(), fits))
    return nullptr;
  auto& plans = dev.template cached<CudnnPlans>();
  if (plans.refused(text)) return nullptr;
  if (problem.dropout == 0 &&
      !attention_scratch_fits(gradient_bytes, dev.properties().totalGlobalMem)) {
    plans.refuse(text, concat("its gradients by heads would take ",
                              static_cast<std::int64_t>(gradient_bytes / 0x1p20), " MiB"));
    return nullptr;
  }
  return &plans;
}

/// The inputs that both passes share.
template <class Dev>
class CudnnAttention {
 public:
  CudnnAttention(Dev& dev, const AttentionProblem& problem, ConstView<Dev> q,
                 const Sequences<Dev>& sequences, const AttentionOptions& options)
      : rows_(q.rows()),
        samples_(sequences.lengths.count()),
        problem_(problem),
        offsets_(sequences.offsets.template data<std::int32_t>()),
        lengths_(sequences.lengths.template data<std::int32_t>()),
        element_offsets_(dev, DType::i64, {problem_.samples + 1}),
        wide_offsets_(dev, DType::i64, {problem_.samples + 1}),
        key_offsets_(dev, DType::i64, {problem_.samples + 1}),
        graph_lengths_(dev, DType::i32, {problem_.samples}),
        statistics_(dev, DType::f32, {problem_.samples * problem_.heads * problem_.length}) {
    AttentionSeed seed;
    if (problem.dropout > 0) {
      seed_ = Tensor<Dev>(dev, DType::i64, {4});  // each number is 16-byte aligned
      seed = {options.random, sequences.row_numbers.template data<std::int64_t>(),
              options.first_head, options.total_heads, seed_.mut().template data<std::int64_t>()};
    }
    launch(dev, grid_for(dev, problem_.samples + 1),
           DescribeSamples{samples_, problem_.samples, q.columns(), options.stride(q.columns()),
                           options.stride(q.columns() / options.sharing()), offsets_, lengths_,
                           element_offsets_.mut().template data<std::int64_t>(),
                           wide_offsets_.mut().template data<std::int64_t>(),
                           key_offsets_.mut().template data<std::int64_t>(),
                           graph_lengths_.mut().template data<std::int32_t>(), seed});
  }

  [[nodiscard]] CudnnArguments arguments() const {
    using Uids = AttentionUids;
    CudnnArguments result;
    result.add(Uids::offsets, element_offsets_.view().bytes())
        .add(Uids::wide_offsets, wide_offsets_.view().bytes())
        .add(Uids::query_lengths, graph_lengths_.view().bytes())
        .add(Uids::key_lengths, graph_lengths_.view().bytes())
        .add(Uids::statistics, statistics_.view().bytes());
    if (problem_.shares_keys()) result.add(Uids::key_offsets, key_offsets_.view().bytes());
    if (seed_)
      result.add(Uids::seed, seed_.view().bytes())
          .add(Uids::seed_offset, seed_.view().slice(2, 4).bytes());
    return result;
  }
  void statistics_to(Dev& dev, View<Dev> logsumexp) {
    launch(dev, grid_for(dev, logsumexp.count()),
           StatisticsFromCudnn{rows_, problem_.heads, samples_, problem_.length, offsets_, lengths_,
                               statistics_.view().template data<float>(),
                               logsumexp.template data<float>()});
  }
  void statistics_from(Dev& dev, ConstView<Dev> logsumexp) {
    launch(dev, grid_for(dev, statistics_.count()),
           StatisticsForCudnn{rows_, problem_.heads, samples_, problem_.samples, problem_.length,
                              offsets_, lengths_, logsumexp.template data<float>(),
                              statistics_.mut().template data<float>()});
  }

 private:
  std::int64_t rows_, samples_;
  AttentionProblem problem_;
  const std::int32_t *offsets_, *lengths_;
  Tensor<Dev> element_offsets_, wide_offsets_, key_offsets_, graph_lengths_, statistics_;
  Tensor<Dev> seed_;  // only with dropout
};

}  // namespace dhp::detail::cuda

namespace dhp::detail {

template <CudaItself Dev>
bool attention_forward_library_on(Dev& dev, ConstView<Dev> q, ConstView<Dev> k, ConstView<Dev> v,
                                  const Sequences<Dev>& sequences, const AttentionOptions& options,
                                  View<Dev> y, View<Dev> logsumexp) {
  using Uids = cuda::AttentionUids;
  if (q.count() == 0 || !cuda::is_for_cudnn(dev, q.dtype(), options.dropout)) return false;
  const auto problem = cuda::attention_problem(q, sequences, options);
  const auto text = problem.text("forward");
  if (auto* const plans = cuda::plans_for_attention<Dev>(dev, problem, text, {q, k, v, y})) {
    cuda::CudnnAttention<Dev> attention(dev, problem, q, sequences, options);
    auto arguments = attention.arguments();
    arguments.add(Uids::q, q.bytes()).add(Uids::k, k.bytes()).add(Uids::v, v.bytes());
    arguments.add(Uids::y, y.bytes());
    if (plans->run(dev, text, {.deterministic = dev.options().deterministic}, arguments,
                   [&] { return cuda::attention_forward_graph(problem); })) {
      attention.statistics_to(dev, logsumexp);
      cuda::clear_padding(dev, sequences, {y}, y.columns());
      return true;
    }
  }
  cuda::check_another_can(problem, text);
  return false;
}

template <CudaItself Dev>
bool attention_backward_library_on(Dev& dev, ConstView<Dev> dy, ConstView<Dev> q, ConstView<Dev> k,
                                   ConstView<Dev> v, ConstView<Dev> y, ConstView<Dev> logsumexp,
                                   const Sequences<Dev>& sequences, const AttentionOptions& options,
                                   View<Dev> dq, View<Dev> dk, View<Dev> dv) {
  using Uids = cuda::AttentionUids;
  if (q.count() == 0 || !cuda::is_for_cudnn(dev, q.dtype(), options.dropout)) return false;
  const auto problem = cuda::attention_problem(q, sequences, options);
  if (cuda::needs_dense_matrices(problem, dev.properties().major)) {
    auto dense = options;
    dense.row_stride = 0;
    cuda::on_dense_copies<Dev>(
        dev, {q, k, v}, {dq, dk, dv}, options.row_stride,
        [&](auto own_q, auto own_k, auto own_v, auto own_dq, auto own_dk, auto own_dv) {
          attention_backward(dev, dy, own_q, own_k, own_v, y, logsumexp, sequences, dense, own_dq,
                             own_dk, own_dv);
        });
    return true;
  }
  const bool deterministic = dev.options().deterministic;
  const auto dq_sums = cuda::dq_sums_for(problem, dev.properties().major, deterministic);
  const auto text = cuda::backward_text(problem, dq_sums);
  if (auto* const plans =
          cuda::plans_for_attention<Dev>(dev, problem, text, {q, k, v, y, dy, dq, dk, dv},
                                         cuda::attention_gradient_bytes(problem, dq_sums))) {
    cuda::CudnnAttention<Dev> attention(dev, problem, q, sequences, options);
    const auto queries = problem.samples * problem.heads * problem.length;
    const Tensor<Dev> inner_products(dev, DType::f32, {queries});
    Tensor<Dev> sums;
    if (dq_sums == cuda::DqSums::rows) sums = Tensor<Dev>(dev, DType::f32, q.shape());
    if (dq_sums == cuda::DqSums::dense)
      sums = Tensor<Dev>(dev, DType::f32, {queries, problem.head_size});
    attention.statistics_from(dev, logsumexp);
    auto arguments = attention.arguments();
    arguments.add(Uids::q, q.bytes()).add(Uids::k, k.bytes()).add(Uids::v, v.bytes());
    arguments.add(Uids::y, y.bytes()).add(Uids::dy, dy.bytes());
    arguments.add(Uids::dq, dq.bytes()).add(Uids::dk, dk.bytes()).add(Uids::dv, dv.bytes());
    arguments.add(Uids::inner_products, inner_products.view().bytes());
    if (sums) arguments.add(Uids::dq_sums, sums.view().bytes());
    Tensor<Dev> dk_of_heads, dv_of_heads;
    if (problem.shares_keys()) {
      for (auto* const each : {&dk_of_heads, &dv_of_heads})
        *each = Tensor<Dev>(dev, q.dtype(), {queries, problem.head_size});
      arguments.add(Uids::dk_of_heads, dk_of_heads.view().bytes());
      arguments.add(Uids::dv_of_heads, dv_of_heads.view().bytes());
    }
    if (plans->run(dev, text, cuda::backward_rules(deterministic), arguments,
                   [&] { return cuda::attention_backward_graph(problem, dq_sums); })) {
      const auto stride = options.stride(q.columns());
      if (problem.shares_keys()) {
        cuda::clear_padding(dev, sequences, {dq}, stride);
        cuda::clear_padding(dev, sequences, {dk, dv}, options.stride(k.columns()));
      } else {
        cuda::clear_padding(dev, sequences, {dq, dk, dv}, stride);
      }
      return true;
    }
  }
  cuda::check_another_can(problem, text);
  return false;
}

/// Returns one sentence, to print before a run, for each pass of this attention that cuDNN cannot run, with the time of
/// dhp's kernel. columns: of all heads together. Throws Error if cuDNN should draw the dropout of such a pass.
template <CudaItself Dev>
[[nodiscard]] std::vector<std::string> attention_shortfalls(
    Dev& dev, DType type, std::int64_t samples, std::int64_t length, int heads,
    std::int64_t columns, double dropout, int key_heads = 0, bool causal = false) {
  if (!cuda::is_for_cudnn(dev, type, dropout)) return {};
  auto problem = cuda::attention_problem(type, samples, length, heads, columns, dropout);
  problem.causal = causal;
  if (key_heads > 0 && key_heads < heads) problem.key_heads = key_heads;
  else problem.row_stride = 3 * columns;
  int clock_khz = 0;
  check_cuda(cudaDeviceGetAttribute(&clock_khz, cudaDevAttrClockRate, dev.number()),
             "cudaDeviceGetAttribute");
  const auto& gpu = dev.properties();
  const cuda::AttentionGpu here{
      gpu.name, gpu.major, gpu.minor, gpu.multiProcessorCount, 1e3 * clock_khz, gpu.totalGlobalMem};
  return cuda::attention_shortfalls(problem, cuda::CudnnTarget(dev.cudnn()), here,
                                    dev.options().deterministic);
}

}  // namespace dhp::detail
