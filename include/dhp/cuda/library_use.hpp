// What cuBLASLt and cuDNN were asked to do on a device, and whether they did: where they refuse, kernels of dhp do it,
// more slowly, and nobody would know.
#pragma once

#include <dhp/device/cuda.hpp>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace dhp::cuda {

struct LibraryUse {
  std::string name;        ///< of the library: "cuDNN"
  std::string problem;     ///< one line: what is done, element types, sizes
  std::int64_t calls = 0;  ///< that the library did
  std::string refusal;     ///< why it did none; else empty

  /// What is done, and the first that is said of it: "conv2d forward", "gemm bf16".
  [[nodiscard]] std::string kind() const {
    return problem.substr(0, problem.find(' ', problem.find(' ') + 1));
  }
};
[[nodiscard]] inline std::string to_text(const LibraryUse& use) {
  if (use.refusal.empty()) return concat(use.name, " did ", use.problem, ", ", use.calls, "x");
  return concat(use.name, " refused ", use.problem, " (", use.refusal,
                "): other kernels do it, slower");
}

/// Which refusals somebody has been told of: the first of each kind, since a model has many sizes.
class RefusalNews : public CudaKept {
 public:
  RefusalNews() = default;
  explicit RefusalNews(Cuda&) {}

  /// A sentence for each kind that is new among `uses`.
  [[nodiscard]] std::vector<std::string> of(const std::vector<LibraryUse>& uses) {
    std::vector<std::string> sentences;
    for (const auto& use : uses)
      if (!use.refusal.empty() && told_.insert(concat(use.name, " ", use.kind())).second)
        sentences.push_back(to_text(use));
    return sentences;
  }

 private:
  std::set<std::string> told_;
};

}  // namespace dhp::cuda
