// CudaGraph: a recorded piece of work, started again and again by one call. Everything it reads and writes stays
// where it was when it was recorded.
#pragma once

#include <dhp/device/cuda_error.hpp>

#include <memory>
#include <type_traits>

namespace dhp {

class CudaGraph {
 public:
  CudaGraph() = default;  ///< nothing was recorded
  explicit CudaGraph(cudaGraph_t recorded) {
    cudaGraphExec_t made = nullptr;
    const auto code = cudaGraphInstantiate(&made, recorded, 0);
    quietly(cudaGraphDestroy(recorded));
    check_cuda(code, "cudaGraphInstantiate");
    graph_ = {made, [](cudaGraphExec_t old) { quietly(cudaGraphExecDestroy(old)); }};
  }

  [[nodiscard]] explicit operator bool() const { return graph_ != nullptr; }
  [[nodiscard]] cudaGraphExec_t get() const { return graph_.get(); }

 private:
  std::shared_ptr<std::remove_pointer_t<cudaGraphExec_t>> graph_;
};

}  // namespace dhp
