// NcclChannel: a communicator of NCCL with the stream that its work is ordered on. What is issued comes after
// all earlier work of the rank's device, and runs beside its later work until somebody waits.
#pragma once

#include <dhp/comm/nccl_branch.hpp>
#include <dhp/device/cuda.hpp>

#include <exception>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace dhp {

struct NcclOptions {
  double timeout_s = 300;  ///< time limit of every collective, send, receive and meeting; 0: none
  std::shared_ptr<const Deadlines> deadlines{};  ///< instead, where there are any
  /// Multiprocessors that one collective, one message, may take. Work of several communicators runs at the same
  /// time and waits for other GPUs while it holds its own: only if all of it fits into the GPU together
  /// does nothing wait for what has no room. A rank has at most three collectives (tensor axis, a
  /// reducer's, one more) and six messages under way: 96 of an A100's 108, an H200's 132.
  int collective_ctas = 24;
  int message_ctas = 4;
};

class NcclChannel : public std::enable_shared_from_this<NcclChannel> {
 public:
  /// This rank's place in a group.
  struct Place {
    int device;      ///< as CUDA numbers the GPUs that this process sees
    int world_rank;  ///< for messages
    int rank;
    int size;
  };

  /// Collective over all who hold `id`.
  NcclChannel(std::shared_ptr<WatchedWorld> world, const Place& place, const ncclUniqueId& id,
              int ctas, CallSite where)
      : NcclChannel(std::move(world), place) {
    auto config = config_of(ctas);
    notes_ = {world_->ledger(), "nccl", all_of(place.size), place.world_rank};
    const NcclOperation operation{"the creation of a group", where};
    world_->add(handle_);  // before: who fails to come must not keep it open
    handle_->open(*world_, operation, [&](ncclComm_t* made) {
      return ncclCommInitRankConfig(made, place.size, id, place.rank, &config);
    });
  }
  /// Takes over a communicator that is ready, and was made with config_of().
  NcclChannel(std::shared_ptr<WatchedWorld> world, const Place& place, ncclComm_t made)
      : NcclChannel(std::move(world), place) {
    notes_ = {world_->ledger(), "nccl", all_of(place.size), place.world_rank};
    handle_->adopt(made);
    watch();
  }
  NcclChannel(const NcclChannel&) = delete;
  NcclChannel& operator=(const NcclChannel&) = delete;
  /// Waits for what is under way. Where an exception is under way there is no sense in that, and the other
  /// ranks may never come: then it ends the world.
  ~NcclChannel() {
    try {
      if (!world_->aborted() && std::uncaught_exceptions() > exceptions_ && handle_->busy())
        world_->abort(
            concat("rank ", place_.world_rank, " failed while its collectives were under way"));
      if (!world_->aborted() && handle_->is_open())
        handle_->close(*world_, {"the end of a group", CallSite::current()});
      if (!world_->aborted()) world_->remove(*handle_);
    } catch (...) {  // the world has ended, and says why at the next call
    }
  }

  /// Collective. Null for a negative colour.
  [[nodiscard]] std::shared_ptr<NcclChannel> split(int color, int key, int ctas, CallSite where) {
    const auto part = std::shared_ptr<NcclChannel>(new NcclChannel(world_, place_));
    const NcclOperation operation{"split", where};
    const auto noted = notes_.note(operation);
    handle_->split_off(*world_, operation, color, key, config_of(ctas), *part->handle_);
    if (!part->handle_->is_open()) return nullptr;
    part->watch();
    part->handle_->run(*world_, operation, [&](ncclComm_t comm) {
      const auto code = ncclCommUserRank(comm, &part->place_.rank);
      return code == ncclSuccess ? ncclCommCount(comm, &part->place_.size) : code;
    });
    if (world_->ledger()) part->notes_ = notes_.of_part(part->gather_world_ranks(operation));
    return part;
  }

  /// Of a communicator whose calls come back at once. Throws where NCCL is not the one whose header has this struct.
  [[nodiscard]] static ncclConfig_t config_of(int ctas) {
    check_nccl_version();
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.maxCTAs = ctas;
    return config;
  }

  [[nodiscard]] const Place& place() const { return place_; }
  [[nodiscard]] WatchedWorld& world() const { return *world_; }
  [[nodiscard]] const std::shared_ptr<WatchedWorld>& shared_world() const { return world_; }

  /// call(ncclComm_t, cudaStream_t), after all work that `dev` was given before. Returns the point of the
  /// channel's stream where it is done. Failures as NcclHandle::run().
  template <class Call>
  CudaEvent issue(Cuda& dev, const NcclOperation& operation, Call call) {
    check(dev.number() == place_.device, "NCCL: ", operation, ": rank ", place_.world_rank,
          " is on GPU ", place_.device, ", but the tensor on GPU ", dev.number(),
          "; make the rank's device with CudaOptions{.device = ", place_.device, "}");
    CudaEvent::of(dev.stream()).before(handle_->stream());
    return dev.recording() ? record(dev, operation, call) : issue(operation, call);
  }
  /// The same, but ordered after the channel's own work alone.
  template <class Call>
  CudaEvent issue(const NcclOperation& operation, Call call) {
    world_->check_alive();
    auto noted = notes_.note(operation);
    auto begin = CudaEvent::of(handle_->stream());
    handle_->run(*world_, operation,
                 [&](ncclComm_t comm) { return call(comm, handle_->stream()); });
    auto end = CudaEvent::of(handle_->stream());
    handle_->watch(operation, std::move(begin), end, std::move(noted));
    return end;
  }

 private:
  // The host cannot look at points of what is being recorded; it watches each run of it.
  template <class Call>
  CudaEvent record(Cuda& dev, const NcclOperation& operation, Call call) {
    world_->check_alive();
    if (recording_ != dev.recording_number()) {
      recording_ = dev.recording_number();
      const auto made = std::make_shared<NcclBranch>(shared_from_this(), world_, handle_, notes_);
      dev.add_branch(made);
      branch_ = made;
    }
    branch_.lock()->add(operation);  // the device keeps it as long as it records
    handle_->run(*world_, operation,
                 [&](ncclComm_t comm) { return call(comm, handle_->stream()); });
    return CudaEvent::of(handle_->stream());
  }
  NcclChannel(std::shared_ptr<WatchedWorld> world, const Place& place)
      : world_(std::move(world)),
        place_(place),
        handle_(std::make_shared<NcclHandle>(*world_, place.world_rank, stream_on(place.device))) {}

  [[nodiscard]] static std::vector<int> all_of(int size) {
    std::vector<int> ranks(static_cast<std::size_t>(size));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }
  // Of the members of this group, in its order.
  [[nodiscard]] std::vector<int> gather_world_ranks(const NcclOperation& operation) {
    std::vector<int> ranks(static_cast<std::size_t>(place_.size));
    const auto bytes = ranks.size() * sizeof(int);
    int* made = nullptr;
    check_cuda(cudaMalloc(&made, bytes + sizeof(int)), "cudaMalloc");
    const std::shared_ptr<int> memory(made, [](int* old) { quietly(cudaFree(old)); });
    int* const mine = made + ranks.size();
    check_cuda(cudaMemcpyAsync(mine, &place_.world_rank, sizeof(int), cudaMemcpyHostToDevice,
                               handle_->stream()),
               "cudaMemcpyAsync to the GPU");
    const auto met = issue(operation, [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclAllGather(mine, made, 1, ncclInt32, comm, stream);
    });
    world_->wait_until([&] { return met.passed(); },
                       [&] {
                         return concat("rank ", place_.world_rank, " waits in ", operation,
                                       " for another rank of its group");
                       });
    world_->check_alive();
    check_cuda(
        cudaMemcpyAsync(ranks.data(), made, bytes, cudaMemcpyDeviceToHost, handle_->stream()),
        "cudaMemcpyAsync to the host");
    check_cuda(cudaStreamSynchronize(handle_->stream()),
               "cudaStreamSynchronize (work before it failed)");
    return ranks;
  }

  // A communicator that is open: after the end of the world nobody else would close it.
  void watch() {
    try {
      world_->add(handle_);
    } catch (...) {
      handle_->end();
      throw;
    }
  }
  // Streams and events are of the calling thread's current GPU.
  static CudaStream stream_on(int device) {
    check_cuda(cudaSetDevice(device), "cudaSetDevice");
    return {};
  }

  std::shared_ptr<WatchedWorld> world_;
  Place place_;
  std::shared_ptr<NcclHandle> handle_;
  NcclNotes notes_;
  std::uint64_t recording_ = 0;       // the last one that it has taken part in
  std::weak_ptr<NcclBranch> branch_;  // its part there
  int exceptions_ = std::uncaught_exceptions();
};

/// A collective under way. Nobody may free or change its buffers before somebody has waited; where the event is
/// dropped instead, the device waits then.
class NcclEvent final : public Event<Cuda>::Work {
 public:
  NcclEvent(std::shared_ptr<NcclChannel> channel, CudaEvent end, cudaStream_t stream)
      : channel_(std::move(channel)), end_(std::move(end)), stream_(stream) {}
  NcclEvent(const NcclEvent&) = delete;
  NcclEvent& operator=(const NcclEvent&) = delete;
  ~NcclEvent() override {
    try {
      if (!waited_) end_.before(stream_);
    } catch (...) {  // the device's next call says it too
    }
  }

  [[nodiscard]] bool done() const override { return end_.passed(); }
  void order() const override {
    channel_->world().check_alive();
    end_.before(stream_);
    waited_ = true;
  }
  void order(Cuda& dev) const override {
    channel_->world().check_alive();
    end_.before(dev.stream());
    if (dev.stream() == stream_) waited_ = true;
  }

 private:
  std::shared_ptr<NcclChannel> channel_;
  CudaEvent end_;
  cudaStream_t stream_;
  mutable bool waited_ = false;
};

}  // namespace dhp
