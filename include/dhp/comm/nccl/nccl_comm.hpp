// NcclComm: ranks on NVIDIA GPUs, in one process or in many. The host waits until a collective is on its stream, not until
// it is done; a group's first message, split, barrier and calls that need a new connection are meetings. A missing rank
// ends the world after the time limit: the device works on with any data, and the next call of a communicator throws.
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
  /// Of every collective, send, receive and meeting; 0: none. Where the world is given, its own limit holds.
  double timeout_s = 300;
  /// Multiprocessors that one collective, one message, may take; 0: as many as fit, at most 24 and 4. Work of several
  /// communicators holds its own while it waits for other GPUs, so all of it must fit into the GPU together: at most three
  /// collectives (tensor axis, a reducer's, one more) and six messages are under way.
  int collective_ctas = 0;
  int message_ctas = 0;

  static constexpr int collectives = 3, messages = 6;

  /// With what the GPU has room for; throws where it has none for what is asked.
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
          " together, and could wait for each other for ever; leave NcclOptions' collective_ctas "
          "and message_ctas at "
          "0, or take a larger GPU or MIG slice");
    return made;
  }
};

/// One rank's handle, cheap to copy; used by one thread at a time. Buffers as of ThreadComm, and none is freed or changed
/// before its event has been waited for or dropped. Sums of 16-bit types are rounded at every step of NCCL's ring; max
/// and min may drop a NaN. Ranks that call different collectives end with the time limit, or with wrong numbers.
/// All ranks of a group come to its first message at the same time. send_capacity() holds between neighbours of the
/// ring of ranks, as in a pipeline; another message may wait for one that this rank has sent elsewhere.
class NcclComm {
 public:
  /// Collective over all who hold `id`, which one of them made with new_nccl_id(). `world` is shared by the ranks of one
  /// process and device is this rank's GPU, which becomes the thread's current one.
  NcclComm(std::shared_ptr<World> world, int device, int rank, int size, const ncclUniqueId& id,
           const NcclOptions& options = {}, CallSite where = CallSite::current())
      : NcclComm(std::move(world), options) {
    check(size >= 1 && rank >= 0 && rank < size, "a world of ", size, " ranks has no rank ", rank);
    check(device >= 0 && device < usable_gpus(), "there is no GPU ", device, " for rank ", rank,
          ": this process sees ", usable_gpus());
    state_->options = options.fitted(device);
    const comm::NcclChannel::Place place{device, rank, size};
    state_->channel = std::make_shared<comm::NcclChannel>(state_->world, place, id,
                                                          state_->options.collective_ctas, where);
  }
  /// Ranks that have a channel already; options: fitted().
  NcclComm(std::shared_ptr<comm::NcclChannel> channel, const NcclOptions& options)
      : NcclComm(channel->world(), options) {
    state_->channel = std::move(channel);
  }

  [[nodiscard]] int rank() const { return alone() ? 0 : state_->channel->place().rank; }
  [[nodiscard]] int size() const { return alone() ? 1 : state_->channel->place().size; }
  /// Messages to one rank that wait to be received, before the *device* of the sender waits; its host never does.
  [[nodiscard]] int send_capacity() const { return comm::message_capacity; }
  [[nodiscard]] std::string transport() const { return "NCCL"; }

  Event<Cuda> start(Cuda& dev, const Collective<Cuda>& collective) {
    if (alone()) return self_.start(dev, collective);
    collective.check_for(size());
    auto end = state_->channel->issue(dev, collective.call, [&](auto... on) {
      return put(collective, static_cast<std::size_t>(size()), on...);
    });
    return Event<Cuda>(
        std::make_shared<comm::NcclEvent>(state_->channel, std::move(end), dev.stream()));
  }

  void send(Cuda& dev, Tensor<Cuda> message, int to, CallSite where) {
    check_message(CallKind::send, rank(), size(), to, where);
    messages(where).send(dev, std::move(message), to, where);
  }
  /// The device waits, not the host.
  void recv(Cuda& dev, View<Cuda> buffer, int from, CallSite where) {
    check_message(CallKind::recv, rank(), size(), from, where);
    messages(where).recv(dev, buffer, from, where);
  }
  /// The host waits for the device; Aborted where the world has ended by then.
  void synchronize(Cuda& dev) {
    if (alone()) dev.synchronize();
    else state_->channel->synchronize(dev);
  }
  /// The host waits until all ranks have come, and this communicator's own collectives are done.
  void barrier(CallSite where) {
    if (!alone()) state_->channel->barrier(where);
  }
  /// The host waits for the other ranks.
  [[nodiscard]] NcclComm split(int color, int key, CallSite where) {
    NcclComm part(state_->world, state_->options);
    const int ctas = state_->options.collective_ctas;
    if (!alone()) part.state_->channel = state_->channel->split(color, key, ctas, where);
    return part;
  }
  /// Ends every rank of this world with this message. Other processes notice a broken connection, or the time limit.
  void abort(const std::string& message) { state_->world->abort(message); }

 private:
  struct State {
    std::shared_ptr<World> world;
    NcclOptions options;
    std::shared_ptr<comm::NcclChannel> channel{};  // null: of no other rank
    std::optional<comm::NcclMessages> messages{};
  };

  NcclComm(std::shared_ptr<World> world, const NcclOptions& options)
      : state_(std::make_shared<State>(State{std::move(world), options})) {}

  [[nodiscard]] bool alone() const { return state_->channel == nullptr; }
  [[nodiscard]] comm::NcclMessages& messages(CallSite where) {
    if (!state_->messages)
      state_->messages.emplace(*state_->channel, state_->options.message_ctas, where);
    return *state_->messages;
  }

  static ncclResult_t put(const Collective<Cuda>& collective, std::size_t ranks, ncclComm_t comm,
                          cudaStream_t stream) {
    const auto& call = collective.call;
    const auto* const in = collective.in.bytes();
    auto* const out = collective.out.bytes();
    const auto count = static_cast<std::size_t>(call.count);
    const auto type = comm::nccl_type(call.dtype);
    switch (call.kind) {
      case CallKind::all_reduce:
        return ncclAllReduce(in, out, count, type, comm::nccl_reduction(call.reduce), comm, stream);
      case CallKind::reduce_scatter:
        return ncclReduceScatter(in, out, count / ranks, type, ncclSum, comm, stream);
      case CallKind::all_gather: return ncclAllGather(in, out, count, type, comm, stream);
      case CallKind::broadcast:
        return ncclBroadcast(in, out, count, type, call.other, comm, stream);
      case CallKind::all_to_all: return exchange_blocks(collective, ranks, comm, stream);
      default: fail(name_of(call.kind), " is no collective of buffers");
    }
  }
  // In one group, so that no two of them wait for each other.
  static ncclResult_t exchange_blocks(const Collective<Cuda>& collective, std::size_t ranks,
                                      ncclComm_t comm, cudaStream_t stream) {
    const auto count = static_cast<std::size_t>(collective.call.count) / ranks;
    const auto bytes = count * size_of(collective.call.dtype);
    const auto type = comm::nccl_type(collective.call.dtype);
    auto code = ncclGroupStart();
    const auto next = [&](ncclResult_t result) {
      if (result != ncclSuccess && result != ncclInProgress && code == ncclSuccess) code = result;
    };
    for (std::size_t at = 0; at < ranks; ++at) {
      const int other = static_cast<int>(at);
      next(ncclSend(collective.in.bytes() + at * bytes, count, type, other, comm, stream));
      next(ncclRecv(collective.out.bytes() + at * bytes, count, type, other, comm, stream));
    }
    const auto ended = ncclGroupEnd();
    return code == ncclSuccess ? ended : code;
  }

  std::shared_ptr<State> state_;
  SelfComm<Cuda> self_;
};

/// This process's rank of a world whose processes have no store in common: collective over them. `id` is made by one of
/// them. Throws where the GPU is unusable, and after the time limit where a rank does not come.
[[nodiscard]] inline Comm<Cuda> nccl_world(const Cuda& dev, int rank, int size,
                                           const ncclUniqueId& id, const NcclOptions& options = {},
                                           CallSite where = CallSite::current()) {
  auto world = std::make_shared<World>(1, World::Options{.timeout_s = options.timeout_s});
  return Comm<Cuda>::of(NcclComm(std::move(world), dev.number(), rank, size, id, options, where));
}

// A host program's communicator: dhp makes one of its own of the same ranks, as libraries over MPI do with MPI_Comm_dup, and
// uses the host's for nothing else: neither has to fit into the order of the other's collectives.

/// For several ranks in one process, which share `world`; else as below.
[[nodiscard]] inline Comm<Cuda> nccl_world(std::shared_ptr<World> world, ncclComm_t hosts,
                                           const NcclOptions& options = {},
                                           CallSite where = CallSite::current()) {
  comm::NcclChannel::Place place{};
  comm::check_nccl(ncclCommCuDevice(hosts, &place.device), "ncclCommCuDevice", where);
  comm::check_nccl(ncclCommUserRank(hosts, &place.rank), "ncclCommUserRank", where);
  comm::check_nccl(ncclCommCount(hosts, &place.size), "ncclCommCount", where);
  const auto fitted = options.fitted(place.device);
  auto channel = std::make_shared<comm::NcclChannel>(std::move(world), place, hosts,
                                                     fitted.collective_ctas, where);
  return Comm<Cuda>::of(NcclComm(std::move(channel), fitted));
}

/// The ranks of a host program's communicator, on its GPU, which becomes the thread's current one. Collective over them:
/// nothing else may be under way on `hosts`, which may be destroyed afterwards. Where it is blocking, this waits for a
/// missing rank as long as it does, else for the time limit.
[[nodiscard]] inline Comm<Cuda> nccl_world(ncclComm_t hosts, const NcclOptions& options = {},
                                           CallSite where = CallSite::current()) {
  auto world = std::make_shared<World>(1, World::Options{.timeout_s = options.timeout_s});
  return nccl_world(std::move(world), hosts, options, where);
}

static_assert(Communicator<NcclComm, Cuda>);
static_assert(Communicator<Comm<Cuda>, Cuda>);

}  // namespace dhp
