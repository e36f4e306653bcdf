// NcclComm: ranks on NVIDIA GPUs, in one or many processes. The host waits until a collective is on its stream, not
// until it is done. Hosts wait for each other in split and barrier, at a group's first message, and for new
// connections. A missing rank ends the world at the time limit: the device continues with garbage, and the next call
// throws.
#pragma once

#include <dhp/comm/comm.hpp>
#include <dhp/comm/nccl/nccl_messages.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace dhp {

struct NcclOptions {
  /// Limit of each collective, message and barrier, in seconds; 0: none. A watchdog that is given has its own limit.
  double timeout_s = 300;
  /// Multiprocessors for one collective and for one message; 0: as many as fit, at most 24 and 4. Pending work holds
  /// its multiprocessors while it waits for other GPUs, so all of it must fit into the GPU together: at most three
  /// collectives (of the tensor axis, of a reducer, and one more) and eight messages.
  int collective_ctas = 0;
  int message_ctas = 0;

  static constexpr int collectives = 3, messages = 8;

  /// Returns options that fit the GPU; throws Error if it has not enough multiprocessors.
  [[nodiscard]] NcclOptions fitted(int device) const {
    cudaDeviceProp gpu{};
    check_cuda(cudaGetDeviceProperties(&gpu, device), "cudaGetDeviceProperties");
    const int multiprocessors = gpu.multiProcessorCount;
    auto made = *this;
    if (message_ctas == 0) made.message_ctas = std::clamp(multiprocessors / 24, 1, 4);
    const int left = multiprocessors - messages * made.message_ctas;
    if (collective_ctas == 0) made.collective_ctas = std::clamp(left / collectives, 1, 24);
    check(made.collective_ctas > 0 && made.message_ctas > 0 &&
              collectives * made.collective_ctas <= left,
          "NCCL: ", collectives, " collectives of ", made.collective_ctas, " multiprocessors and ",
          messages, " messages of ", made.message_ctas, " do not fit into the ", multiprocessors,
          " of GPU ", device, " (", gpu.name, ")",
          " together, and could wait for each other forever; leave NcclOptions' collective_ctas "
          "and message_ctas at 0, or take a larger GPU or MIG slice");
    return made;
  }
};

namespace detail {
/// One rank's handle, cheap to copy, used by one thread at a time. Buffers follow the rules of ThreadComm, and none may
/// be freed or changed before its event was waited for or dropped. Sums of 16-bit types are rounded at every step of
/// NCCL's ring; max and min may drop a NaN. If ranks call different collectives, they end at the time limit, or with
/// wrong numbers. All ranks of a group take part in its first message. send_capacity() holds between neighbors in the
/// ring of ranks, as in a pipeline; other messages may wait for messages to other ranks.
class NcclComm {
 public:
  /// Collective over all ranks that hold `id`, which one of them made by new_nccl_id(). The ranks of one process share
  /// `watchdog`. device: this rank's GPU, which becomes the thread's current one.
  NcclComm(std::shared_ptr<Watchdog> watchdog, int device, int rank, int size,
           const ncclUniqueId& id, const NcclOptions& options = {},
           CallSite where = CallSite::current())
      : NcclComm(std::move(watchdog), options) {
    check(size >= 1 && rank >= 0 && rank < size, "a world of ", size, " ranks has no rank ", rank);
    check(device >= 0 && device < usable_gpus(), "there is no GPU ", device, " for rank ", rank,
          ": this process sees ", usable_gpus());
    state_->options = options.fitted(device);
    const NcclChannel::Place place{device, rank, size};
    state_->channel = std::make_shared<NcclChannel>(state_->watchdog, place, id,
                                                    state_->options.collective_ctas, where);
  }
  /// Makes a communicator of a connected channel. options must be fitted().
  NcclComm(std::shared_ptr<NcclChannel> channel, const NcclOptions& options)
      : NcclComm(channel->watchdog(), options) {
    state_->channel = std::move(channel);
  }

  [[nodiscard]] int rank() const { return state_->channel ? state_->channel->place().rank : 0; }
  /// After a split that leaves this rank alone, the size is 1, and a Comm makes no other call.
  [[nodiscard]] int size() const { return state_->channel ? state_->channel->place().size : 1; }
  /// Limit of unreceived messages to one rank. Beyond it the sender's *device* waits, never its host.
  [[nodiscard]] int send_capacity() const { return message_capacity; }
  [[nodiscard]] std::string transport() const { return "NCCL"; }

  Event<Cuda> start(Cuda& dev, const Collective<Cuda>& collective) {
    auto end = state_->channel->issue(
        dev, collective.call, [&](auto... on) { return put(collective, rank(), size(), on...); });
    return Event<Cuda>(std::make_shared<NcclEvent>(state_->channel, std::move(end), dev.stream()));
  }

  void send(Cuda& dev, Tensor<Cuda> message, int to, CallSite where) {
    messages(where).send(dev, std::move(message), to, where);
  }
  /// Makes the device, not the host, wait for the message.
  void recv(Cuda& dev, View<Cuda> buffer, int from, CallSite where) {
    messages(where).recv(dev, buffer, from, where);
  }
  /// Blocks the host until the device is done; throws Aborted if the world has ended.
  void synchronize(Cuda& dev) { state_->channel->synchronize(dev); }
  /// Blocks the host until all ranks have arrived and this communicator's collectives are done.
  void barrier(CallSite where) { state_->channel->barrier(where); }
  /// Blocks the host until the other ranks have arrived.
  [[nodiscard]] NcclComm split(int color, int key, CallSite where) {
    NcclComm part(state_->watchdog, state_->options);
    const int ctas = state_->options.collective_ctas;
    part.state_->channel = state_->channel->split(color, key, ctas, where);
    return part;
  }
  /// Ends all ranks of this world with this message. Without a common store, processes only see a broken connection.
  void abort(const std::string& message) { state_->watchdog->abort(message); }

 private:
  struct State {
    std::shared_ptr<Watchdog> watchdog;
    NcclOptions options;
    std::shared_ptr<NcclChannel> channel{};  // null if there is no other rank
    std::optional<NcclMessages> messages{};
  };

  NcclComm(std::shared_ptr<Watchdog> watchdog, const NcclOptions& options)
      : state_(std::make_shared<State>(State{std::move(watchdog), options})) {}

  [[nodiscard]] NcclMessages& messages(CallSite where) {
    if (!state_->messages)
      state_->messages.emplace(*state_->channel, state_->options.message_ctas, where);
    return *state_->messages;
  }

  static ncclResult_t put(const Collective<Cuda>& collective, int rank, int ranks, ncclComm_t comm,
                          cudaStream_t stream) {
    const auto& call = collective.call;
    const auto* const in = collective.in.bytes();
    auto* const out = collective.out.bytes();
    const auto count = as_size(call.count);
    const auto type = nccl_type(call.dtype);
    switch (call.kind) {
      case CallKind::all_reduce:
        return ncclAllReduce(in, out, count, type, nccl_reduction(call.reduce), comm, stream);
      case CallKind::reduce_scatter:
        return ncclReduceScatter(in, out, count / as_size(ranks), type, ncclSum, comm, stream);
      case CallKind::all_gather: return ncclAllGather(in, out, count, type, comm, stream);
      case CallKind::broadcast:
        return ncclBroadcast(in, out, count, type, call.other, comm, stream);
      case CallKind::all_to_all:
      case CallKind::shift: return exchange_blocks(collective, rank, ranks, comm, stream);
      default: fail(name_of(call.kind), " is no collective of buffers");
    }
  }
  // Exchanges the block of a shift, or all blocks of an all_to_all in one NCCL group, so that none waits for another.
  static ncclResult_t exchange_blocks(const Collective<Cuda>& collective, int rank, int ranks,
                                      ncclComm_t comm, cudaStream_t stream) {
    const bool to_all = collective.call.kind == CallKind::all_to_all;
    const auto count = as_size(collective.call.count) / (to_all ? as_size(ranks) : 1);
    const auto bytes = to_all ? count * size_of(collective.call.dtype) : 0;
    const auto type = nccl_type(collective.call.dtype);
    auto code = ncclGroupStart();
    const auto next = [&](ncclResult_t result) {
      if (result != ncclSuccess && result != ncclInProgress && code == ncclSuccess) code = result;
    };
    const auto exchange = [&](int to, int from) {
      next(ncclSend(collective.in.bytes() + as_size(to) * bytes, count, type, to, comm, stream));
      next(ncclRecv(collective.out.bytes() + as_size(from) * bytes, count, type, from, comm,
                    stream));
    };
    if (!to_all) exchange((rank + 1) % ranks, (rank + ranks - 1) % ranks);
    for (int other = 0; to_all && other < ranks; ++other) exchange(other, other);
    const auto ended = ncclGroupEnd();
    return code == ncclSuccess ? ended : code;
  }

  std::shared_ptr<State> state_;
};
}  // namespace detail

/// Makes this process's rank of a world without a common store. Collective; one rank makes `id` for all. Throws Error
/// if the GPU is unusable, or, after the time limit, if a rank is missing.
[[nodiscard]] inline Comm<Cuda> nccl_world(const Cuda& dev, int rank, int size,
                                           const ncclUniqueId& id, const NcclOptions& options = {},
                                           CallSite where = CallSite::current()) {
  auto watchdog = std::make_shared<Watchdog>(1, WatchOptions{.timeout_s = options.timeout_s});
  return Comm<Cuda>::of(
      detail::NcclComm(std::move(watchdog), dev.number(), rank, size, id, options, where));
}

// The overloads for a host program's communicator use it once, to make dhp's own communicator of the same ranks, as
// libraries use MPI_Comm_dup. After that, the collectives of the two may run in any order.

/// For several ranks in one process, which share `watchdog`; otherwise like the overload without it.
[[nodiscard]] inline Comm<Cuda> nccl_world(std::shared_ptr<Watchdog> watchdog, ncclComm_t hosts,
                                           const NcclOptions& options = {},
                                           CallSite where = CallSite::current()) {
  detail::NcclChannel::Place place{};
  detail::check_nccl(ncclCommCuDevice(hosts, &place.device), "ncclCommCuDevice", where);
  detail::check_nccl(ncclCommUserRank(hosts, &place.rank), "ncclCommUserRank", where);
  detail::check_nccl(ncclCommCount(hosts, &place.size), "ncclCommCount", where);
  const auto fitted = options.fitted(place.device);
  auto channel = std::make_shared<detail::NcclChannel>(std::move(watchdog), place, hosts,
                                                       fitted.collective_ctas, where);
  return Comm<Cuda>::of(detail::NcclComm(std::move(channel), fitted));
}

/// Makes a world of the ranks of a host program's communicator, on its GPU, which becomes the thread's current one.
/// Collective: nothing else may be pending on `hosts`. The program may destroy `hosts` afterwards. If a rank is
/// missing, a blocking `hosts` waits forever, and a nonblocking one until the time limit.
[[nodiscard]] inline Comm<Cuda> nccl_world(ncclComm_t hosts, const NcclOptions& options = {},
                                           CallSite where = CallSite::current()) {
  auto watchdog = std::make_shared<Watchdog>(1, WatchOptions{.timeout_s = options.timeout_s});
  return nccl_world(std::move(watchdog), hosts, options, where);
}

static_assert(Communicator<detail::NcclComm, Cuda>);
static_assert(Communicator<Comm<Cuda>, Cuda>);

}  // namespace dhp
