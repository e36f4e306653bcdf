// CublasPlans: the algorithms of cuBLASLt that a device uses, chosen by time and kept by problem.
#pragma once

#include <dhp/cuda/cublas_product.hpp>
#include <dhp/cuda/library_use.hpp>
#include <dhp/cuda/tuning.hpp>

#include <cstdio>
#include <optional>

namespace dhp::cuda {

/// Descriptors and chosen algorithms of a device, by problem.
class CublasPlans : public CudaKept {
 public:
  explicit CublasPlans(Cuda&) {}

  /// False where cuBLASLt cannot do it, and then nothing was written.
  [[nodiscard]] bool run(Cuda& dev, CublasCall call) {
    call.tf32 = may_round(dev, call);
    const CublasKey key(call);
    auto found = plans_.find(key);
    if (found == plans_.end()) found = plans_.emplace(key, choose(dev, call, key)).first;
    if (!found->second) return false;
    found->second->product.point(call);
    check_cublas(multiply(dev, call, found->second->product, found->second->algorithm, call.c),
                 "cublasLtMatmul");
    ++found->second->calls;
    return true;
  }
  /// Whether run() would return true. Launches nothing.
  [[nodiscard]] bool can(Cuda& dev, CublasCall call) {
    call.tf32 = may_round(dev, call);
    const auto found = plans_.find(CublasKey(call));
    if (found != plans_.end()) return found->second != nullptr;
    return !algorithms(dev, call, CublasProduct(call), 1).empty();
  }
  /// What was asked for; refused_alone: and not done.
  [[nodiscard]] std::vector<LibraryUse> uses(bool refused_alone = false) const {
    std::vector<LibraryUse> all;
    for (const auto& [key, plan] : plans_)
      if (!plan || !refused_alone)
        all.push_back({"cuBLASLt", key.text(), plan ? plan->calls : 0,
                       plan ? "" : "it proposes no algorithm"});
    return all;
  }

 private:
  struct Plan {
    CublasProduct product;
    CublasAlgorithm algorithm;
    std::int64_t calls = 0;
  };

  [[nodiscard]] static bool may_round(Cuda& dev, const CublasCall& call) {
    return dev.options().tf32 && call.in == DType::f32;
  }

  std::unique_ptr<Plan> choose(Cuda& dev, const CublasCall& call, const CublasKey& key) {
    auto& tuning = dev.kept<Tuning>();
    CublasProduct product(call);
    const auto chosen = tuning.choices.find(key.text());
    if (const auto stored = chosen ? checked(dev, product, *chosen) : std::nullopt)
      return std::make_unique<Plan>(Plan{std::move(product), *stored});
    const bool timed = Tuning::may_time(dev);
    const auto all = algorithms(dev, call, product, timed ? most_algorithms : 1);
    if (all.empty()) return nullptr;
    const auto best = timed && all.size() > 1 ? fastest(dev, call, product, all) : all.front();
    if (timed) tuning.choices.keep(key.text(), to_hex(best));
    return std::make_unique<Plan>(Plan{std::move(product), best});
  }

  /// Writes to memory of its own where c is also read.
  static CublasAlgorithm fastest(Cuda& dev, const CublasCall& call, const CublasProduct& product,
                                 const std::vector<CublasAlgorithm>& all) {
    CublasAlgorithm best = all.front();
    float best_ms = std::numeric_limits<float>::infinity();
    try {
      std::shared_ptr<std::byte> scratch;
      if (call.beta != 0)
        scratch =
            dev.allocate(static_cast<std::size_t>(call.product.c.rows * call.product.c.columns) *
                         size_of(call.out));
      std::byte* const c = scratch ? scratch.get() : call.c;
      const Stopwatch watch;
      for (const auto& one : all) {
        if (multiply(dev, call, product, one, c) != CUBLAS_STATUS_SUCCESS) continue;
        const float ms = watch.shortest_ms(dev.stream(), [&] {
          check_cublas(multiply(dev, call, product, one, c), "cublasLtMatmul");
        });
        if (ms < best_ms) {
          best = one;
          best_ms = ms;
        }
      }
    } catch (const OutOfMemory&) {  // then the library's favourite
    }
    return best;
  }

  /// An algorithm as text: cuBLASLt allows to store it for the same version.
  static std::string to_hex(const CublasAlgorithm& algorithm) {
    std::string out;
    for (const auto word : algorithm.algorithm.data) {
      char digits[17] = "";
      std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(word));
      out += digits;
    }
    return out;
  }
  static std::optional<CublasAlgorithm> checked(Cuda& dev, const CublasProduct& product,
                                                const std::string& hex) {
    CublasAlgorithm made;
    auto& words = made.algorithm.data;
    if (hex.size() != std::size(words) * 16) return {};
    for (std::size_t at = 0; at < std::size(words); ++at) {
      const char* const first = hex.data() + at * 16;
      std::uint64_t word = 0;
      if (std::from_chars(first, first + 16, word, 16).ptr != first + 16) return {};
      words[at] = word;
    }
    cublasLtMatmulHeuristicResult_t result{};
    if (cublasLtMatmulAlgoCheck(dev.cublas(), product.how(), product.left(), product.right(),
                                product.c(), product.c(), &made.algorithm,
                                &result) != CUBLAS_STATUS_SUCCESS ||
        result.workspaceSize > dev.workspace_bytes())
      return {};
    made.workspace_bytes = result.workspaceSize;
    return made;
  }

  std::map<CublasKey, std::unique_ptr<Plan>> plans_;
};

}  // namespace dhp::cuda
