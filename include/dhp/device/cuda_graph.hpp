// CudaGraph: a recorded piece of work, started again and again by one call. Everything it reads and writes stays
// where it was when it was recorded. CudaBranch: what of it runs beside the device's own stream.
#pragma once

#include <dhp/device/cuda_event.hpp>

#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>
#include <vector>

namespace dhp {

/// Somebody whose stream takes part in a recorded piece of work, such as a communicator.
class CudaBranch {
 public:
  virtual ~CudaBranch() = default;
  [[nodiscard]] virtual cudaStream_t stream() const = 0;
  /// The graph is about to be launched, and what it works with stays open while the lock is held. Throws where it
  /// has ended.
  [[nodiscard]] virtual std::unique_lock<std::mutex> hold() = 0;
  /// The graph has been launched: it runs between these points of the device's stream.
  virtual void launched(const CudaEvent& begin, const CudaEvent& end) = 0;
};

class CudaGraph {
 public:
  using Branches = std::vector<std::shared_ptr<CudaBranch>>;

  CudaGraph() = default;  ///< nothing was recorded
  explicit CudaGraph(cudaGraph_t recorded, Branches branches = {})
      : branches_(std::move(branches)) {
    cudaGraphExec_t made = nullptr;
    const auto code = cudaGraphInstantiate(&made, recorded, 0);
    quietly(cudaGraphDestroy(recorded));
    check_cuda(code, "cudaGraphInstantiate");
    graph_ = {made, [](cudaGraphExec_t old) { quietly(cudaGraphExecDestroy(old)); }};
  }

  [[nodiscard]] explicit operator bool() const { return graph_ != nullptr; }
  void launch(cudaStream_t stream) const {
    if (branches_.empty()) return check_cuda(cudaGraphLaunch(graph_.get(), stream), launch_name);
    CudaEvent begin, end;
    {
      std::vector<std::unique_lock<std::mutex>> held;
      for (const auto& branch : branches_) held.push_back(branch->hold());
      begin = CudaEvent::of(stream);
      check_cuda(cudaGraphLaunch(graph_.get(), stream), launch_name);
      end = CudaEvent::of(stream);
    }
    for (const auto& branch : branches_) branch->launched(begin, end);
  }

 private:
  static constexpr const char* launch_name = "cudaGraphLaunch";
  Branches branches_;  // outlive the graph: NCCL ends no communicator that a graph still works with
  std::shared_ptr<std::remove_pointer_t<cudaGraphExec_t>> graph_;
};

}  // namespace dhp
