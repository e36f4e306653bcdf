// NcclBranch: what a recorded step does on one communicator of NCCL. Each run of the step is watched, and noted in the
// ledger, as one call of each kind: as the first of its calls, "and so many more of a recorded step".
#pragma once

#include <dhp/comm/nccl_handle.hpp>
#include <dhp/comm/nccl_notes.hpp>
#include <dhp/device/cuda_graph.hpp>

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace dhp {

/// owner: what the communicator lives in; NCCL does not end one that a recorded step still works with.
class NcclBranch final : public CudaBranch {
 public:
  NcclBranch(std::shared_ptr<void> owner, std::shared_ptr<WatchedWorld> world,
             std::shared_ptr<NcclHandle> handle, NcclNotes& notes)
      : owner_(std::move(owner)),
        world_(std::move(world)),
        handle_(std::move(handle)),
        notes_(&notes) {}

  /// A call that is being recorded.
  void add(const NcclOperation& operation) {
    // Collectives of a group come in one order on all ranks, messages on each edge.
    const auto alike = [&](const NcclOperation& other) {
      return other.peer == operation.peer &&
             (other.peer < 0 || std::strcmp(other.name, operation.name) == 0);
    };
    const auto found = std::find_if(kinds_.begin(), kinds_.end(), alike);
    if (found == kinds_.end()) kinds_.push_back(operation);
    else ++found->more;
  }

  [[nodiscard]] cudaStream_t stream() const override { return handle_->stream(); }
  [[nodiscard]] std::unique_lock<std::mutex> hold() override { return handle_->hold(*world_); }
  void launched(const CudaEvent& begin, const CudaEvent& end) override {
    for (const auto& kind : kinds_) handle_->watch(kind, begin, end, notes_->note(kind));
  }

 private:
  std::shared_ptr<void> owner_;
  std::shared_ptr<WatchedWorld> world_;
  std::shared_ptr<NcclHandle> handle_;
  NcclNotes* notes_;  // the owner's
  std::vector<NcclOperation> kinds_;
};

}  // namespace dhp
