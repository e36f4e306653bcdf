// CudaGraph: recorded work that one call replays, always at the same memory addresses.
#pragma once

#include <dhp/device/cuda_event.hpp>
#include <dhp/device/cuda_memory.hpp>

#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>
#include <vector>

namespace dhp::detail {
/// A participant in a recording that has its own stream, such as a communicator.
class CudaBranch {
 public:
  virtual ~CudaBranch() = default;
  [[nodiscard]] virtual cudaStream_t stream() const = 0;
  /// Called before a launch. Keeps the participant open while the lock is held. Throws if the participant was closed.
  [[nodiscard]] virtual std::unique_lock<std::mutex> hold() = 0;
  /// Called after a launch. The graph runs between the points `begin` and `end` of the device's stream.
  virtual void launched(const CudaEvent& begin, const CudaEvent& end) = 0;
};

class CudaGraph {
 public:
  using Branches = std::vector<std::shared_ptr<CudaBranch>>;

  CudaGraph() = default;  ///< an empty graph
  CudaGraph(CudaGraph&&) = default;
  /// Ends the old graph in the order of its destructor: work, communicators, memory.
  CudaGraph& operator=(CudaGraph&& other) noexcept {
    graph_ = std::exchange(other.graph_, {});
    branches_ = std::exchange(other.branches_, {});
    arena_ = std::exchange(other.arena_, {});
    return *this;
  }
  /// arena: the graph's memory, which ends after it.
  explicit CudaGraph(cudaGraph_t recorded, Branches branches = {},
                     std::shared_ptr<const CudaArena> arena = {})
      : arena_(std::move(arena)), branches_(std::move(branches)) {
    cudaGraphExec_t result = nullptr;
    const auto code = cudaGraphInstantiate(&result, recorded, 0);
    quietly(cudaGraphDestroy(recorded));
    check_cuda(code, "cudaGraphInstantiate");
    graph_ = {result, [](cudaGraphExec_t old) { quietly(cudaGraphExecDestroy(old)); }};
  }

  [[nodiscard]] explicit operator bool() const { return graph_ != nullptr; }
  void launch(cudaStream_t stream) const {
    if (branches_.empty()) return check_cuda(cudaGraphLaunch(graph_.get(), stream), launch_name);
    CudaEvent begin, end;
    {
      std::vector<std::unique_lock<std::mutex>> held;
      for (const auto& branch : branches_) held.push_back(branch->hold());
      begin = CudaEvent::recorded(stream);
      check_cuda(cudaGraphLaunch(graph_.get(), stream), launch_name);
      end = CudaEvent::recorded(stream);
    }
    for (const auto& branch : branches_) branch->launched(begin, end);
  }

 private:
  static constexpr const char* launch_name = "cudaGraphLaunch";
  std::shared_ptr<const CudaArena> arena_;
  // The branches must outlive the graph: NCCL cannot destroy a communicator that a live graph uses.
  Branches branches_;
  std::shared_ptr<std::remove_pointer_t<cudaGraphExec_t>> graph_;
};
}  // namespace dhp::detail
