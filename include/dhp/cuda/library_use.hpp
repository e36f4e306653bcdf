// A record of requests to cuBLASLt and cuDNN. dhp's slower kernels run refused requests, and this record reports them.
#pragma once

#include <dhp/device/cuda.hpp>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace dhp::detail::cuda {

struct LibraryUse {
  std::string name;        ///< name of the library: "cuDNN"
  std::string problem;     ///< one line: operation, element types, sizes
  std::int64_t calls = 0;  ///< calls that the library has run
  std::string refusal;     ///< the reason for refusal, or empty

  /// Returns the operation and its first attribute: "conv2d forward", "gemm bf16".
  [[nodiscard]] std::string kind() const {
    return problem.substr(0, problem.find(' ', problem.find(' ') + 1));
  }
};
[[nodiscard]] inline std::string to_text(const LibraryUse& use) {
  if (use.refusal.empty()) return concat(use.name, " did ", use.problem, ", ", use.calls, "x");
  return concat(use.name, " refused ", use.problem, " (", use.refusal,
                "): other kernels do it, slower");
}

/// Remembers the kinds of refusals that were reported, because a model has many sizes of each kind.
class RefusalNews : public CudaCached {
 public:
  RefusalNews() = default;
  explicit RefusalNews(Cuda&) {}

  /// Returns one sentence for each new kind of refusal in `uses`.
  [[nodiscard]] std::vector<std::string> new_sentences(const std::vector<LibraryUse>& uses) {
    std::vector<std::string> sentences;
    for (const auto& use : uses)
      if (!use.refusal.empty() && reported_.insert(concat(use.name, " ", use.kind())).second)
        sentences.push_back(to_text(use));
    return sentences;
  }

 private:
  std::set<std::string> reported_;
};

}  // namespace dhp::detail::cuda
