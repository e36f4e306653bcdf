// CublasPlans: a device's cuBLASLt algorithms. The number of rows of packed batches changes in every step, so
// algorithms are timed once for each class of sizes, with the first size of the class. For each other size, cuBLASLt
// checks on the host whether the class's algorithm applies; if not, its heuristic favorite is used. A size's algorithm
// thus depends only on the choice for its class.
#pragma once

#include <dhp/cuda/cublas_product.hpp>
#include <dhp/cuda/library_use.hpp>
#include <dhp/cuda/tuning.hpp>

#include <charconv>
#include <optional>

namespace dhp::detail::cuda {

/// The descriptors and algorithms of a device's products, by size class.
class CublasPlans : public CudaCached {
 public:
  explicit CublasPlans(Cuda&) {}

  /// Returns false, having written nothing, if cuBLASLt cannot compute the product.
  [[nodiscard]] bool run(Cuda& dev, CublasCall call) {
    complete(dev, call);
    const CublasKey key(call);
    Plan& plan = plans_[key];
    if (!plan.is_for(call)) fit(dev, call, key, plan);
    if (!plan.taken) return false;
    plan.product->point(call);
    // Some algorithms report only here that they do not support the product.
    for (; plan.taken; take_next(dev, call, plan)) {
      const auto status = multiply(dev, call, *plan.product, *plan.taken, call.c);
      if (is_unsupported(status)) continue;
      check_cublas(status, "cublasLtMatmul");
      ++plan.calls;
      return true;
    }
    return false;
  }
  /// Returns whether cuBLASLt has an algorithm for the call. Launches nothing.
  [[nodiscard]] bool can(Cuda& dev, CublasCall call) {
    complete(dev, call);
    const auto found = plans_.find(CublasKey(call));
    if (found != plans_.end() && found->second.is_for(call)) return found->second.taken.has_value();
    return favorite(dev, call, CublasProduct(call)).has_value();
  }
  /// Returns all requests; refused_alone: only requests with a refused size.
  [[nodiscard]] std::vector<LibraryUse> uses(bool refused_alone = false) const {
    std::vector<LibraryUse> all;
    for (const auto& [key, plan] : plans_)
      if (!plan.refusal.empty() || !refused_alone)
        all.push_back({"cuBLASLt", key.text(), plan.calls, plan.refusal});
    return all;
  }

 private:
  struct Plan {
    std::optional<CublasAlgorithm> by_time{};  // the choice for the class
    // The state of the most recent size:
    ColumnMajorProduct size{};
    std::optional<CublasProduct> product{};
    std::optional<CublasAlgorithm> taken{};  // none: cuBLASLt cannot run it
    std::vector<CublasAlgorithm> refused{};  // algorithms that refused to run

    std::string refusal{};  // the reason if a size was refused
    std::int64_t calls = 0;

    [[nodiscard]] bool is_for(const CublasCall& call) const {
      return product && std::is_eq(size <=> call.product);  // nvcc 13.0 derives no == from <=>
    }
  };

  static void complete(Cuda& dev, CublasCall& call) {
    call.tf32 = dev.options().tf32 && call.in == DType::f32;
    call.sms = dev.options().cublas_sms;
  }

  /// Adapts a class's plan to the size of the call.
  static void fit(Cuda& dev, const CublasCall& call, const CublasKey& key, Plan& plan) {
    plan.product.reset();  // so is_for() is false if code below throws
    CublasProduct product(call);
    if (!plan.by_time) plan.by_time = find_by_time(dev, call, key.text(), product);
    plan.refused.clear();
    plan.taken = plan.by_time;
    if (!plan.taken || !fits(dev, product, *plan.taken)) {
      plan.taken = favorite(dev, call, product);
      if (!plan.taken) plan.refusal = "it proposes no algorithm";
    }
    plan.size = call.product;
    plan.product = std::move(product);
  }
  /// After a refusal, takes the first proposal for this size that has not been refused.
  static void take_next(Cuda& dev, const CublasCall& call, Plan& plan) {
    plan.refused.push_back(*plan.taken);
    plan.taken.reset();
    for (const auto& one : algorithms(dev, call, *plan.product, max_algorithms))
      if (std::none_of(plan.refused.begin(), plan.refused.end(), [&](const CublasAlgorithm& other) {
            return to_hex(one) == to_hex(other);
          })) {
        plan.taken = one;
        return;
      }
    plan.refusal = "none of its algorithms runs";
  }
  /// Returns the heuristic favorite for this size.
  static std::optional<CublasAlgorithm> favorite(Cuda& dev, const CublasCall& call,
                                                 const CublasProduct& product) {
    const auto all = algorithms(dev, call, product, 1);
    return all.empty() ? std::nullopt : std::optional(all.front());
  }
  /// Returns the class's algorithm for `problem`: from the file of choices, or the fastest for this size. Returns none
  /// if timing is not allowed or cuBLASLt cannot run this size.
  static std::optional<CublasAlgorithm> find_by_time(Cuda& dev, const CublasCall& call,
                                                     const std::string& problem,
                                                     const CublasProduct& product) {
    auto& choices = dev.cached<Tuning>().choices;
    const auto kept = choices.find(problem);
    if (const auto made = kept ? from_hex(*kept) : std::nullopt) return made;
    if (!Tuning::may_time(dev)) return {};
    const auto all = algorithms(dev, call, product, max_algorithms);
    if (all.empty()) return {};
    const auto best = all.size() > 1 ? fastest(dev, call, product, all) : all.front();
    choices.keep(problem, to_hex(best));
    return best;
  }

  /// Times the algorithms and returns the fastest. If c is also an input, they write to scratch.
  static CublasAlgorithm fastest(Cuda& dev, const CublasCall& call, const CublasProduct& product,
                                 const std::vector<CublasAlgorithm>& all) {
    CublasAlgorithm best = all.front();
    float best_ms = std::numeric_limits<float>::infinity();
    try {
      std::shared_ptr<std::byte> scratch;
      if (call.beta != 0)
        scratch = dev.allocate(as_size(call.product.c.stride * call.product.c.columns) *
                               size_of(call.out));
      std::byte* const c = scratch ? scratch.get() : call.c;
      for (const auto& one : all) {
        if (multiply(dev, call, product, one, c) != CUBLAS_STATUS_SUCCESS) continue;
        const float ms = shortest_ms(dev.stream(), [&] {
          check_cublas(multiply(dev, call, product, one, c), "cublasLtMatmul");
        });
        if (ms < best_ms) {
          best = one;
          best_ms = ms;
        }
      }
    } catch (const OutOfMemory&) {  // then returns the best so far
    }
    return best;
  }

  /// Returns an algorithm as text, which the same version of cuBLASLt can reuse.
  static std::string to_hex(const CublasAlgorithm& algorithm) {
    std::string out;
    for (const auto word : algorithm.algorithm.data) out += digits_of(word, 16, 16);
    return out;
  }
  static std::optional<CublasAlgorithm> from_hex(const std::string& hex) {
    CublasAlgorithm made;
    auto& words = made.algorithm.data;
    if (hex.size() != std::size(words) * 16) return {};
    for (std::size_t at = 0; at < std::size(words); ++at) {
      const char* const first = hex.data() + at * 16;
      std::uint64_t word = 0;
      if (std::from_chars(first, first + 16, word, 16).ptr != first + 16) return {};
      words[at] = word;
    }
    return made;
  }
  /// Returns whether an algorithm found for another size, or by another process, fits this size.
  static bool fits(Cuda& dev, const CublasProduct& product, const CublasAlgorithm& algorithm) {
    cublasLtMatmulHeuristicResult_t result{};
    return cublasLtMatmulAlgoCheck(dev.cublas(), product.how(), product.left(), product.right(),
                                   product.c(), product.c(), &algorithm.algorithm,
                                   &result) == CUBLAS_STATUS_SUCCESS &&
           result.workspaceSize <= dev.workspace_bytes();
  }

  std::map<CublasKey, Plan> plans_;
};

}  // namespace dhp::detail::cuda
