// Before a run: finds the passes of a model's attention for which cuDNN has no engine, and estimates the time that
// dhp's own kernels need for them.
#pragma once

#include <dhp/cuda/cudnn_attention_graph.hpp>
#include <dhp/cuda/cudnn_plan.hpp>
#include <dhp/cuda/fallback_attention.hpp>

#include <string>
#include <vector>

namespace dhp::detail::cuda {

[[nodiscard]] inline CudnnRules backward_rules(bool deterministic) {
  return {.deterministic = deterministic, .workspace_bytes = std::size_t{8} << 30};
}

/// The number of cuDNN's engines for each pass of attention.
struct AttentionEngines {
  std::size_t forward = 0, backward = 0;
  [[nodiscard]] bool all() const { return forward > 0 && backward > 0; }
};
[[nodiscard]] inline AttentionEngines attention_engines(const AttentionProblem& problem,
                                                        const CudnnTarget& target, int major,
                                                        bool deterministic) {
  auto backward = problem;
  if (needs_dense_matrices(problem, major)) backward.row_stride = 0;
  const auto count = [&](const CudnnGraph& graph, const CudnnRules& rules) {
    return candidates(graph, target, rules).size();
  };
  return {count(attention_forward_graph(problem), {.deterministic = deterministic}),
          count(attention_backward_graph(backward, dq_sums_for(problem, major, deterministic)),
                backward_rules(deterministic))};
}

/// Returns the multiply-adds of a multiprocessor per cycle, by mma.m16n8k16 with fp32 sums. On Hopper, mma reaches 62 %
/// of the rate of wgmma. A B200 is assumed to match an A100.
[[nodiscard]] constexpr double flash_products_per_cycle(int major, int minor) {
  if (major == 9) return 0.62 * 2048;
  return (major == 8 && minor == 0) || major == 10 ? 1024 : 512;
}
/// Returns the instructions besides mma for a query-key pair, fitted to the times of an H200 for heads of 64 columns.
[[nodiscard]] constexpr double flash_instructions(bool backward, bool dropout) {
  return backward ? dropout ? 34 : 18 : dropout ? 18 : 6;
}

/// The properties of a GPU that determine the time of dhp's own attention.
struct AttentionGpu {
  std::string name;
  int major = 9, minor = 0, multiprocessors = 132;
  double clock_hz = 1.7e9;
  std::size_t memory_bytes = 0;

  /// Estimates the time of one pass. On an H200, kernels on tensor cores took twice the sum of mma's time and the time
  /// of other instructions. The other kernels are bound by loads from shared memory.
  [[nodiscard]] double own_ms(const AttentionProblem& problem, bool backward) const {
    const auto pairs = static_cast<double>(problem.samples * problem.heads) *
                       static_cast<double>(problem.length * problem.length) *
                       (problem.causal ? 0.5 : 1);
    const auto products = fallback_attention_products(problem.head_size, backward);
    const double cycles =
        problem.head_size % flash_pack == 0
            ? 2 * (products / flash_products_per_cycle(major, minor) +
                   flash_instructions(backward, problem.dropout > 0) / (4 * warp_size))
            : products / AttentionTile::products_per_cycle;
    return 1e3 * pairs * cycles / (multiprocessors * clock_hz);
  }
};

/// Returns one sentence for each pass that dhp's own kernels will run instead of cuDNN, with the estimated time. Throws
/// Error if cuDNN should draw the dropout of such a pass, because no other kernel has cuDNN's random numbers.
[[nodiscard]] inline std::vector<std::string> attention_shortfalls(const AttentionProblem& problem,
                                                                   const CudnnTarget& target,
                                                                   const AttentionGpu& gpu,
                                                                   bool deterministic) {
  const bool draws = problem.dropout > 0;
  const auto gradient_bytes =
      attention_gradient_bytes(problem, dq_sums_for(problem, gpu.major, deterministic));
  const bool sums = draws || attention_scratch_fits(gradient_bytes, gpu.memory_bytes);
  auto engines = attention_engines(problem, target, gpu.major, deterministic);
  if (!sums) engines.backward = 0;
  std::string way_out;
  if (sums && deterministic && attention_engines(problem, target, gpu.major, false).all())
    way_out = "; cuDNN does it without --deterministic and without a tensor axis";
  std::vector<std::string> sentences;
  for (const bool backward : {false, true}) {
    if ((backward ? engines.backward : engines.forward) > 0) continue;
    const auto text = concat(
        backward && !sums ? concat("the scratch for gradients by heads of ",
                                   static_cast<std::int64_t>(gradient_bytes / 0x1p20),
                                   " MiB is too large for cuDNN")
                          : concat("cuDNN ", cudnnGetVersion(), " has no engine"),
        " for ",
        problem.text(backward ? deterministic ? "backward in order" : "backward" : "forward"),
        " on ", gpu.name, " (compute capability ", gpu.major, ".", gpu.minor, ")");
    check(!draws, text,
          ", so it cannot draw the dropout: run without --library-dropout "
          "(CudaOptions::library_dropout)");
    const auto ms = gpu.own_ms(problem, backward);
    sentences.push_back(concat(text, ": a kernel of dhp does it, in about ",
                               ms < 10 ? std::ceil(10 * ms) / 10 : std::round(ms),
                               " ms per layer and micro-batch", way_out));
  }
  return sentences;
}

}  // namespace dhp::detail::cuda
