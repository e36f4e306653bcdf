// NcclChannel is an NCCL communicator with its stream. Its work starts after all earlier work of the rank's device, and
// overlaps with later work until a wait. In the flight recorder, a call lasts until the device has finished it.
#pragma once

#include <dhp/comm/event.hpp>
#include <dhp/comm/nccl/handle.hpp>
#include <dhp/device/cuda.hpp>
#include <dhp/device/cuda_graph.hpp>
#include <dhp/device/pinned.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace dhp::detail {

/// The calls that a recorded step makes on one NCCL communicator. For each run, the flight recorder gets one record per
/// kind of call: the first call, with the number of further ones. owner keeps the communicator alive.
class NcclBranch final : public CudaBranch {
 public:
  NcclBranch(std::shared_ptr<void> owner, std::shared_ptr<NcclHandle> handle)
      : owner_(std::move(owner)), handle_(std::move(handle)) {}

  /// Adds a call of the step that is being recorded.
  void add(const CommCall& call) {
    // Calls of one kind have the same order on all their ranks: the group's collectives, or the messages of an edge.
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
    CommCall first;
    int more;
  };
  std::shared_ptr<void> owner_;
  std::shared_ptr<NcclHandle> handle_;
  std::vector<Kind> kinds_;
};

class NcclChannel : public std::enable_shared_from_this<NcclChannel>, NonCopyable {
 public:
  struct Place {
    int device;  ///< number of the GPU among those that this process sees
    int rank, size;
  };

  /// Connects all ranks of a world. Collective over all ranks that hold `id`.
  NcclChannel(std::shared_ptr<Watchdog> watchdog, const Place& place, const ncclUniqueId& id,
              int ctas, CallSite where)
      : NcclChannel(std::move(watchdog), place) {
    auto config = config_of(ctas);
    watchdog_->watch(handle_);  // before open(): the watchdog ends its wait for a missing rank
    handle_->open(NcclTask{"the creation of a group", where}, [&](ncclComm_t* result) {
      return ncclCommInitRankConfig(result, place.size, id, place.rank, &config);
    });
  }
  /// Splits a communicator off the host program's, which must not be used at the same time. Collective.
  NcclChannel(std::shared_ptr<Watchdog> watchdog, const Place& place, ncclComm_t hosts, int ctas,
              CallSite where)
      : NcclChannel(std::move(watchdog), place) {
    NcclHandle of_host(*watchdog_, handle_->recorder(), CudaStream(nullptr));
    of_host.borrow(hosts);
    become_part_of(of_host, NcclTask{"the copy of a communicator", where}, 0, ctas);
  }
  /// Waits for pending work. During an exception, ends the world instead.
  ~NcclChannel() {
    try {
      if (!watchdog_->ended() && std::uncaught_exceptions() > exceptions_ && handle_->busy())
        watchdog_->abort(concat("rank ", handle_->recorder().rank(),
                                " failed while its collectives were under way"));
      if (!watchdog_->ended() && handle_->is_open()) handle_->close();
      if (!watchdog_->ended()) watchdog_->unwatch(*handle_);
    } catch (...) {  // the world has ended, and the next call says why
    }
  }

  /// Splits off a group; null for a negative color or a group of one, which need no communicator. Collective.
  [[nodiscard]] std::shared_ptr<NcclChannel> split(int color, int key, int ctas, CallSite where) {
    const CommCall call{.kind = CallKind::split, .where = where};
    const auto recorded = handle_->recorder().begin(call);
    const auto color_keys = gather({color, key}, call);
    const auto members = part_with(place_.rank, color_keys);
    const auto has_others = [&](const ColorKey& of) {
      return of.color >= 0 &&
             std::count_if(color_keys.begin(), color_keys.end(),
                           [&](const auto& other) { return other.color == of.color; }) > 1;
    };
    if (std::none_of(color_keys.begin(), color_keys.end(), has_others)) return nullptr;
    if (members.size() == 1) color = -1;
    const auto at = std::find(members.begin(), members.end(), place_.rank) - members.begin();
    std::vector<int> world_ranks;
    for (const int member : members)
      world_ranks.push_back(handle_->recorder().members()[as_size(member)]);
    const Place place{place_.device, static_cast<int>(at), static_cast<int>(members.size())};
    const std::shared_ptr<NcclChannel> part(
        new NcclChannel(watchdog_, place, handle_->recorder().of_part(std::move(world_ranks))));
    part->become_part_of(*handle_, call, color, ctas);
    return color < 0 ? nullptr : part;
  }
  /// Blocks the host until all ranks have arrived and this channel's calls are done.
  void barrier(CallSite where) {
    const CommCall call{.kind = CallKind::barrier, .where = where};
    auto* const any = words();
    meet(call, issue(call, [&](ncclComm_t comm, cudaStream_t stream) {
           return ncclAllReduce(any, any, 1, ncclInt32, ncclMax, comm, stream);
         }));
  }

  /// Blocks the host until all earlier work of the device is done. Throws Aborted if the world has ended: after an
  /// abort the device continues with garbage in place of missing data.
  void synchronize(Cuda& dev) {
    if (dev.recording()) return dev.synchronize();  // throws: a recording cannot wait
    const auto end = CudaEvent::recorded(dev.stream());
    watchdog_->wait_until([&] { return end.passed(); },
                          [&] {
                            return concat("rank ", handle_->recorder().rank(), " waits for GPU ",
                                          dev.number());
                          });
    watchdog_->check_alive();
  }

  [[nodiscard]] const Place& place() const { return place_; }
  [[nodiscard]] const std::shared_ptr<Watchdog>& watchdog() const { return watchdog_; }

  /// Runs action(ncclComm_t, cudaStream_t) after all earlier work of `dev`. Returns the point of the channel's stream
  /// where the action's work ends. Throws like NcclHandle::run().
  CudaEvent issue(Cuda& dev, const CommCall& call, auto action) {
    if (dev.number() != place_.device) {
      const auto text =
          concat("NCCL: ", call, ": rank ", handle_->recorder().rank(), " is on GPU ",
                 place_.device, ", but the tensor on GPU ", dev.number(),
                 "; make the rank's device with CudaOptions{.device = ", place_.device, "}");
      watchdog_->abort(text);  // first, because a throw frees memory, which waits for the GPU
      throw Error(text, call.where);
    }
    CudaEvent::recorded(dev.stream()).before(handle_->stream());
    if (!dev.recording()) return issue(call, action);
    // The host cannot query events inside a recording, so each run of the recording is watched as a whole.
    watchdog_->check_alive();
    if (recording_ != dev.recording_id()) {
      recording_ = dev.recording_id();
      const auto result = std::make_shared<NcclBranch>(shared_from_this(), handle_);
      dev.add_branch(result);
      branch_ = result;
    }
    branch_.lock()->add(call);  // the device keeps the branch while it records
    return put(call, action);
  }

 private:
  NcclChannel(std::shared_ptr<Watchdog> watchdog, const Place& place)
      : NcclChannel(watchdog, place, recorder_of(*watchdog, place)) {}
  NcclChannel(std::shared_ptr<Watchdog> watchdog, const Place& place, GroupRecorder recorder)
      : watchdog_(std::move(watchdog)),
        place_(place),
        handle_(std::make_shared<NcclHandle>(*watchdog_, std::move(recorder),
                                             stream_on(place.device))) {}

  // If the watchdog does not know all ranks (a host program has ranks in other processes), it must not compare calls.
  [[nodiscard]] static GroupRecorder recorder_of(const Watchdog& watchdog, const Place& place) {
    const bool known = watchdog.size() == place.size;
    return {known ? watchdog.recorder(place.rank) : std::make_shared<FlightRecorder>(), place.rank,
            place.size};
  }
  // The stream is made on the calling thread's current GPU.
  [[nodiscard]] static CudaStream stream_on(int device) {
    check_cuda(cudaSetDevice(device), "cudaSetDevice");
    return {};
  }
  /// Returns the settings of a nonblocking communicator. Throws if the loaded NCCL does not fit NCCL's header.
  [[nodiscard]] static ncclConfig_t config_of(int ctas) {
    check_nccl_version();
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.maxCTAs = ctas;
    return config;
  }
  void become_part_of(NcclHandle& whole, const auto& what, int color, int ctas) {
    whole.split_off(what, color, place_.rank, config_of(ctas), *handle_);
    if (!handle_->is_open()) return;
    try {
      watchdog_->watch(handle_);
    } catch (...) {  // the world has ended, so the watchdog will not end the handle
      handle_->end();
      throw;
    }
  }

  CudaEvent put(const CommCall& call, auto action) {
    handle_->run(call, [&](ncclComm_t comm) { return action(comm, handle_->stream()); });
    return CudaEvent::recorded(handle_->stream());
  }
  // Runs action() after the channel's earlier work, which need not follow the work of a device.
  CudaEvent issue(const CommCall& call, auto action) {
    watchdog_->check_alive();
    auto recorded = handle_->recorder().begin(call);
    auto begin = CudaEvent::recorded(handle_->stream());
    auto end = put(call, action);
    handle_->watch(std::move(recorded), std::move(begin), end);
    return end;
  }
  void meet(const CommCall& call, const CudaEvent& met) {
    handle_->wait_until(call, "another rank of its group", [&] { return met.passed(); });
    watchdog_->check_alive();
  }
  [[nodiscard]] std::vector<ColorKey> gather(ColorKey mine, const CommCall& call) {
    std::vector<ColorKey> all(as_size(place_.size));
    auto *const received = words(), *const sent = received + 2 * all.size();
    const auto bytes = all.size() * sizeof mine;
    auto* const host = host_words_.get();
    const auto copy = [&](void* to, const void* from, std::size_t count) {
      check_cuda(cudaMemcpyAsync(to, from, count, cudaMemcpyDefault, handle_->stream()),
                 "cudaMemcpyAsync of a split");
    };
    std::memcpy(host + bytes, &mine, sizeof mine);
    copy(sent, host + bytes, sizeof mine);
    put(call, [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclAllGather(sent, received, 2, ncclInt32, comm, stream);
    });
    copy(host, received, bytes);
    meet(call, CudaEvent::recorded(handle_->stream()));
    std::memcpy(all.data(), host, bytes);
    return all;
  }
  // Returns GPU memory for the ColorKey of every rank, followed by one more for this rank's own.
  [[nodiscard]] int* words() {
    static_assert(sizeof(ColorKey) == 2 * sizeof(int));
    if (words_ == nullptr) {
      const auto bytes = (as_size(place_.size) + 1) * sizeof(ColorKey);
      int* result = nullptr;
      check_cuda(cudaMalloc(&result, bytes), "cudaMalloc");
      words_ = {result, [](int* old) { quietly(cudaFree(old)); }};
      host_words_ = allocate_pinned(bytes);
    }
    return words_.get();
  }

  std::shared_ptr<Watchdog> watchdog_;
  Place place_;
  std::shared_ptr<int> words_;
  // Pinned: copying pageable memory may hold a driver lock that another rank of this process needs meanwhile.
  std::shared_ptr<std::byte> host_words_;
  std::shared_ptr<NcclHandle> handle_;
  RecordingId recording_;             // the last recording with this channel
  std::weak_ptr<NcclBranch> branch_;  // this channel's branch of that recording
  int exceptions_ = std::uncaught_exceptions();
};

/// A pending collective, whose buffers must not be freed or changed before wait(). If the event is dropped without a
/// wait, the device waits.
class NcclEvent final : public Event<Cuda>::Work, NonCopyable {
 public:
  NcclEvent(std::shared_ptr<NcclChannel> channel, CudaEvent end, cudaStream_t stream)
      : channel_(std::move(channel)), end_(std::move(end)), stream_(stream) {}
  ~NcclEvent() override {
    try {
      if (!waited_) end_.before(stream_);
    } catch (...) {  // the device's next call throws the error
    }
  }

  [[nodiscard]] bool done() const override { return end_.passed(); }
  void order() const override { order_on(stream_); }
  void order(Cuda& dev) const override { order_on(dev.stream()); }

 private:
  void order_on(cudaStream_t stream) const {
    channel_->watchdog()->check_alive();
    end_.before(stream);
    if (stream == stream_) waited_ = true;
  }

  std::shared_ptr<NcclChannel> channel_;
  CudaEvent end_;
  cudaStream_t stream_;
  mutable bool waited_ = false;
};

}  // namespace dhp::detail
