// How cuBLASLt is asked: descriptors of a product, the algorithms that it proposes, a call; and the choice among
// them, by time, kept by problem.
#pragma once

#include <dhp/cuda/cublas_problem.hpp>
#include <dhp/cuda/tuning.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

namespace dhp::cuda {

struct DestroyCublas {
  void operator()(cublasLtMatmulDesc_t old) const noexcept {
    static_cast<void>(cublasLtMatmulDescDestroy(old));
  }
  void operator()(cublasLtMatrixLayout_t old) const noexcept {
    static_cast<void>(cublasLtMatrixLayoutDestroy(old));
  }
  void operator()(cublasLtMatmulPreference_t old) const noexcept {
    static_cast<void>(cublasLtMatmulPreferenceDestroy(old));
  }
};
template <class Handle>
using CublasOwner = std::unique_ptr<std::remove_pointer_t<Handle>, DestroyCublas>;

/// Descriptors of a call. Nothing here needs a GPU.
class CublasProduct {
 public:
  explicit CublasProduct(const CublasCall& call)
      : how_(make_how(call)),
        left_(layout(call.in, call.product.left)),
        right_(layout(call.in, call.product.right)),
        c_(layout(call.out, call.product.c)) {
    point(call);
  }

  [[nodiscard]] cublasLtMatmulDesc_t how() const { return how_.get(); }
  [[nodiscard]] cublasLtMatrixLayout_t left() const { return left_.get(); }
  [[nodiscard]] cublasLtMatrixLayout_t right() const { return right_.get(); }
  [[nodiscard]] cublasLtMatrixLayout_t c() const { return c_.get(); }

  /// The addresses that are attributes: those of this call.
  void point(const CublasCall& call) {
    if (call.bias != nullptr) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, call.bias);
    if (call.aux != nullptr) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, call.aux);
  }

 private:
  static CublasOwner<cublasLtMatmulDesc_t> make_how(const CublasCall& call) {
    cublasLtMatmulDesc_t made = nullptr;
    // f32 is multiplied in f32: TF32 would be CUBLAS_COMPUTE_32F_FAST_TF32.
    const bool wide = call.in == DType::f64;
    check_cublas(cublasLtMatmulDescCreate(&made, wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                          wide ? CUDA_R_64F : CUDA_R_32F),
                 "cublasLtMatmulDescCreate");
    CublasOwner<cublasLtMatmulDesc_t> owner(made);
    const auto operation = [](bool transposed) -> std::int32_t {
      return transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    };
    set(made, CUBLASLT_MATMUL_DESC_TRANSA, operation(call.product.transpose_left));
    set(made, CUBLASLT_MATMUL_DESC_TRANSB, operation(call.product.transpose_right));
    set(made, CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<std::uint32_t>(call.epilogue));
    if (call.bias != nullptr)
      set(made, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
          static_cast<std::int32_t>(cublas_type(call.bias_type)));
    if (call.aux != nullptr) set(made, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, call.product.c.rows);
    return owner;
  }
  static CublasOwner<cublasLtMatrixLayout_t> layout(DType type,
                                                    const ColumnMajorProduct::Matrix& matrix) {
    cublasLtMatrixLayout_t made = nullptr;
    check_cublas(cublasLtMatrixLayoutCreate(
                     &made, cublas_type(type), static_cast<std::uint64_t>(matrix.rows),
                     static_cast<std::uint64_t>(matrix.columns), matrix.rows),
                 "cublasLtMatrixLayoutCreate");
    return CublasOwner<cublasLtMatrixLayout_t>(made);
  }
  template <class Value>
  static void set(cublasLtMatmulDesc_t how, cublasLtMatmulDescAttributes_t name,
                  const Value& value) {
    check_cublas(cublasLtMatmulDescSetAttribute(how, name, &value, sizeof value),
                 "cublasLtMatmulDescSetAttribute");
  }
  template <class Value>
  void set(cublasLtMatmulDescAttributes_t name, const Value& value) {
    set(how_.get(), name, value);
  }

  CublasOwner<cublasLtMatmulDesc_t> how_;
  CublasOwner<cublasLtMatrixLayout_t> left_, right_, c_;
};

struct CublasAlgorithm {
  cublasLtMatmulAlgo_t algorithm{};
  std::size_t workspace_bytes = 0;
};

/// What cuBLASLt proposes, its favourite first; none where it cannot. Parts of a sum are added in the
/// accumulation type, never in the 16 bits of c.
[[nodiscard]] inline std::vector<CublasAlgorithm> algorithms(Cuda& dev, const CublasCall& call,
                                                             const CublasProduct& product,
                                                             int most) {
  cublasLtMatmulPreference_t made = nullptr;
  check_cublas(cublasLtMatmulPreferenceCreate(&made), "cublasLtMatmulPreferenceCreate");
  const CublasOwner<cublasLtMatmulPreference_t> preference(made);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t name, const auto& value) {
    check_cublas(cublasLtMatmulPreferenceSetAttribute(made, name, &value, sizeof value),
                 "cublasLtMatmulPreferenceSetAttribute");
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(dev.workspace_bytes()));
  const bool wide = call.out == accumulation_type(call.in);
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<std::uint32_t>(wide ? CUBLASLT_REDUCTION_SCHEME_MASK
                                      : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(call.left));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(call.right));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(call.c));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(call.c));
  // Not a vector: nvcc 13 ends with an internal error on a vector of this type.
  std::array<cublasLtMatmulHeuristicResult_t, 16> results{};
  most = std::min(most, static_cast<int>(results.size()));
  int count = 0;
  const auto code =
      cublasLtMatmulAlgoGetHeuristic(dev.cublas(), product.how(), product.left(), product.right(),
                                     product.c(), product.c(), made, most, results.data(), &count);
  std::vector<CublasAlgorithm> found;
  if (code != CUBLAS_STATUS_SUCCESS) return found;  // such a product it does not know
  for (int at = 0; at < count; ++at) {
    const auto& result = results[static_cast<std::size_t>(at)];
    if (result.state == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= dev.workspace_bytes())
      found.push_back({result.algo, result.workspaceSize});
  }
  return found;
}

/// Puts the product on the device's stream. c: other memory than the call's, of the same alignment.
[[nodiscard]] inline cublasStatus_t multiply(Cuda& dev, const CublasCall& call,
                                             const CublasProduct& product,
                                             const CublasAlgorithm& algorithm, std::byte* c) {
  const float alpha32 = static_cast<float>(call.alpha), beta32 = static_cast<float>(call.beta);
  const bool wide = call.in == DType::f64;
  const void* const alpha = wide ? static_cast<const void*>(&call.alpha) : &alpha32;
  const void* const beta = wide ? static_cast<const void*>(&call.beta) : &beta32;
  return cublasLtMatmul(dev.cublas(), product.how(), alpha, call.left, product.left(), call.right,
                        product.right(), beta, c, product.c(), c, product.c(), &algorithm.algorithm,
                        dev.workspace(), dev.workspace_bytes(), dev.stream());
}

/// Descriptors and chosen algorithms of a device, by problem.
class CublasPlans : public CudaKept {
 public:
  explicit CublasPlans(Cuda&) {}

  /// False where cuBLASLt cannot do it, and then nothing was written.
  [[nodiscard]] bool run(Cuda& dev, const CublasCall& call) {
    const CublasKey key(call);
    auto found = plans_.find(key);
    if (found == plans_.end()) found = plans_.emplace(key, choose(dev, call, key)).first;
    if (!found->second) return false;
    found->second->product.point(call);
    check_cublas(multiply(dev, call, found->second->product, found->second->algorithm, call.c),
                 "cublasLtMatmul");
    return true;
  }
  /// Whether run() would return true. Launches nothing.
  [[nodiscard]] bool can(Cuda& dev, const CublasCall& call) {
    const auto found = plans_.find(CublasKey(call));
    if (found != plans_.end()) return found->second != nullptr;
    return !algorithms(dev, call, CublasProduct(call), 1).empty();
  }

 private:
  struct Plan {
    CublasProduct product;
    CublasAlgorithm algorithm;
  };
  static constexpr int most_timed = 8;

  std::unique_ptr<Plan> choose(Cuda& dev, const CublasCall& call, const CublasKey& key) {
    auto& tuning = dev.kept<Tuning>();
    CublasProduct product(call);
    const auto chosen = tuning.choices.find(key.text());
    if (const auto stored = chosen ? checked(dev, product, *chosen) : std::nullopt)
      return std::make_unique<Plan>(Plan{std::move(product), *stored});
    const bool timed = tuning.may_time(dev);
    const auto all = algorithms(dev, call, product, timed ? most_timed : 1);
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
