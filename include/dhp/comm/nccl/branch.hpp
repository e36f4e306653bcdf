// NcclBranch: what a recorded step does on one communicator of NCCL. Each run of the step is watched and recorded as one
// call of each kind: as the first of its calls, "and so many more of a recorded step".
#pragma once

#include <dhp/comm/nccl/handle.hpp>
#include <dhp/device/cuda_graph.hpp>

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace dhp::comm {

/// owner: what the communicator lives in; NCCL does not end one that a recorded step still works with.
class NcclBranch final : public CudaBranch {
 public:
  NcclBranch(std::shared_ptr<void> owner, std::shared_ptr<NcclHandle> handle)
      : owner_(std::move(owner)), handle_(std::move(handle)) {}

  /// A call that is being recorded.
  void add(const Call& call) {
    // Collectives of a group come in one order on all ranks, messages on each edge.
    const auto alike = [&](const Kind& kind) {
      if (!call.is_message()) return !kind.first.is_message();
      return kind.first.kind == call.kind && kind.first.other == call.other;
    };
    const auto found = std::find_if(kinds_.begin(), kinds_.end(), alike);
    if (found == kinds_.end()) kinds_.push_back({call, 0});
    else ++found->more;
  }

  [[nodiscard]] cudaStream_t stream() const override { return handle_->stream(); }
  [[nodiscard]] std::unique_lock<std::mutex> hold() override { return handle_->hold(); }
  void launched(const CudaEvent& begin, const CudaEvent& end) override {
    for (const auto& [first, more] : kinds_)
      handle_->watch(handle_->recorder().begin(first, more), begin, end);
  }

 private:
  struct Kind {
    Call first;
    int more;
  };
  std::shared_ptr<void> owner_;
  std::shared_ptr<NcclHandle> handle_;
  std::vector<Kind> kinds_;
};

}  // namespace dhp::comm
