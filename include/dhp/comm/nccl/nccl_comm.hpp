// NcclComm: ranks on NVIDIA GPUs, in one process or in many. The host waits until NCCL has put a collective on its
// stream, not until it is done; but the first message of a group, split and barrier are meetings, and so is a
// call for which NCCL has no connection yet. A rank that is missing ends the world after
// the time limit: the device then works on with whatever is in its memory, so results that were not yet on
// the host count for nothing, and the next call of a communicator throws.
#pragma once

#include <dhp/comm/comm.hpp>
#include <dhp/comm/nccl_messages.hpp>

#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace dhp {

/// One rank's handle, cheap to copy; used by one thread at a time. Buffers as of ThreadComm, and none is freed
/// or changed before its event has been waited for or dropped.
/// Sums of 16-bit types are rounded at every step of NCCL's ring. All kinds of max and min drop a NaN or keep it
/// as NCCL likes. Ranks that call different collectives are not told apart: they end with the time limit,
/// or with wrong numbers.
/// Messages: every rank of the group comes to a first send or recv, of whatever message, at the same time; then
/// between neighbours of the ring of ranks, and that is all that a pipeline has, send_capacity() is what
/// it says. Between others a message may wait for one that this rank has sent elsewhere.
class NcclComm {
 public:
  /// Collective over all who hold `id`, which one of them made with new_nccl_id(). `world` is shared by the ranks
  /// of one process and device is this rank's GPU, which becomes the thread's current one.
  NcclComm(std::shared_ptr<WatchedWorld> world, int device, int rank, int size,
           const ncclUniqueId& id, NcclOptions options = {}, CallSite where = CallSite::current())
      : NcclComm(std::move(world), options) {
    check(size >= 1 && rank >= 0 && rank < size, "a world of ", size, " ranks has no rank ", rank);
    check(device >= 0 && device < usable_gpus(), "there is no GPU ", device, " for rank ", rank,
          ": this process sees ", usable_gpus());
    state_->channel =
        std::make_shared<NcclChannel>(state_->world, NcclChannel::Place{device, rank, rank, size},
                                      id, options.collective_ctas, where);
  }

  /// The ranks of a channel.
  explicit NcclComm(std::shared_ptr<NcclChannel> channel, const NcclOptions& options = {})
      : NcclComm(channel->shared_world(), options) {
    state_->channel = std::move(channel);
  }

  [[nodiscard]] int rank() const { return alone() ? 0 : place().rank; }
  [[nodiscard]] int size() const { return alone() ? 1 : place().size; }
  /// Messages to one rank that wait to be received, before the *device* of the sender waits; its host never does.
  [[nodiscard]] int send_capacity() const { return message_capacity; }
  [[nodiscard]] std::string transport() const { return "NCCL"; }

  Event<Cuda> all_reduce(Cuda& dev, View<Cuda> buffer, Reduce reduce = Reduce::sum,
                         CallSite where = CallSite::current()) {
    if (alone()) return self_.all_reduce(dev, buffer, reduce);
    const auto call = [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclAllReduce(buffer.bytes(), buffer.bytes(), count_of(buffer),
                           nccl_type(buffer.dtype()), nccl_reduction(reduce), comm, stream);
    };
    return issue(dev, {"all_reduce", where, buffer.count(), buffer.dtype(), name_of(reduce)}, call);
  }
  Event<Cuda> reduce_scatter(Cuda& dev, ConstView<Cuda> in, View<Cuda> out,
                             CallSite where = CallSite::current()) {
    if (alone()) return self_.reduce_scatter(dev, in, out);
    check(in.count() == out.count() * size() && in.dtype() == out.dtype(),
          "reduce_scatter: ", in.dtype(), " ", in.shape(), " is not ", size(), " blocks of ",
          out.dtype(), " ", out.shape());
    const auto call = [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclReduceScatter(in.bytes(), out.bytes(), count_of(out), nccl_type(in.dtype()),
                               ncclSum, comm, stream);
    };
    return issue(dev, {"reduce_scatter", where, in.count(), in.dtype()}, call);
  }
  Event<Cuda> all_gather(Cuda& dev, ConstView<Cuda> in, View<Cuda> out,
                         CallSite where = CallSite::current()) {
    if (alone()) return self_.all_gather(dev, in, out);
    check(out.count() == in.count() * size() && in.dtype() == out.dtype(),
          "all_gather: ", out.dtype(), " ", out.shape(), " is not ", size(), " blocks of ",
          in.dtype(), " ", in.shape());
    const auto call = [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclAllGather(in.bytes(), out.bytes(), count_of(in), nccl_type(in.dtype()), comm,
                           stream);
    };
    return issue(dev, {"all_gather", where, in.count(), in.dtype()}, call);
  }
  Event<Cuda> broadcast(Cuda& dev, View<Cuda> buffer, int root,
                        CallSite where = CallSite::current()) {
    check(root >= 0 && root < size(), "broadcast: no rank ", root, " in a group of ", size());
    if (alone()) return {};
    const auto call = [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclBroadcast(buffer.bytes(), buffer.bytes(), count_of(buffer),
                           nccl_type(buffer.dtype()), root, comm, stream);
    };
    return issue(dev, {"broadcast", where, buffer.count(), buffer.dtype()}, call);
  }
  Event<Cuda> all_to_all(Cuda& dev, ConstView<Cuda> in, View<Cuda> out,
                         CallSite where = CallSite::current()) {
    check(in.count() == out.count() && in.dtype() == out.dtype() && in.count() % size() == 0,
          "all_to_all: ", in.dtype(), " ", in.shape(), " and ", out.dtype(), " ", out.shape(),
          " are not ", size(), " equal blocks each");
    check(in.bytes() != out.bytes() || in.count() == 0, "all_to_all does not work in place");
    if (alone()) return self_.all_to_all(dev, in, out);
    const auto call = [&](ncclComm_t comm, cudaStream_t stream) {
      return exchange_blocks(in, out, size(), comm, stream);
    };
    return issue(dev, {"all_to_all", where, in.count(), in.dtype()}, call);
  }

  void send(Cuda& dev, Tensor<Cuda> message, int to, CallSite where = CallSite::current()) {
    check(to >= 0 && to < size() && to != rank(), "send: rank ", rank(), " of ", size(),
          " cannot send to rank ", to);
    messages(where).send(dev, std::move(message), to, where);
  }
  /// The device waits, not the host.
  void recv(Cuda& dev, View<Cuda> message, int from, CallSite where = CallSite::current()) {
    check(from >= 0 && from < size() && from != rank(), "recv: rank ", rank(), " of ", size(),
          " cannot receive from rank ", from);
    messages(where).recv(dev, message, from, where);
  }

  /// The host waits until all ranks have come, and this communicator's own collectives are done; other work of
  /// the device may still be under way.
  void barrier(CallSite where = CallSite::current()) {
    if (alone()) return;
    auto& word = state_->barrier_word;
    if (word == nullptr) word = new_word();
    const auto met =
        state_->channel->issue({"barrier", where}, [&](ncclComm_t comm, cudaStream_t stream) {
          return ncclAllReduce(word.get(), word.get(), 1, ncclInt32, ncclMax, comm, stream);
        });
    const auto waiting = [&] {
      return concat("rank ", place().world_rank, " waits in barrier at ", to_text(where),
                    " for another rank of its group");
    };
    state_->world->wait_until([&] { return met.passed(); }, waiting);
    state_->world->check_alive();
  }

  /// The host waits for the other ranks.
  [[nodiscard]] NcclComm split(int color, int key, CallSite where = CallSite::current()) {
    NcclComm part(state_->world, state_->options);
    if (!alone())
      part.state_->channel =
          state_->channel->split(color, key, state_->options.collective_ctas, where);
    return part;
  }
  /// Ends every rank of this process's world with this message. Ranks of other processes find out when a
  /// connection breaks, at the latest after the time limit.
  void abort(const std::string& message) { state_->world->abort(message); }

 private:
  struct State {
    std::shared_ptr<WatchedWorld> world;
    NcclOptions options;
    std::shared_ptr<int> barrier_word{};  // outlives the channel
    std::shared_ptr<NcclChannel> channel{};
    std::optional<NcclMessages> messages{};
  };

  NcclComm(std::shared_ptr<WatchedWorld> world, const NcclOptions& options)
      : state_(std::make_shared<State>(State{std::move(world), options})) {}

  [[nodiscard]] bool alone() const { return state_->channel == nullptr; }
  [[nodiscard]] const NcclChannel::Place& place() const { return state_->channel->place(); }
  template <class View>
  [[nodiscard]] static std::size_t count_of(const View& view) {
    return static_cast<std::size_t>(view.count());
  }
  template <class Call>
  Event<Cuda> issue(Cuda& dev, const NcclOperation& operation, const Call& call) {
    auto end = state_->channel->issue(dev, operation, call);
    return Event<Cuda>(std::make_shared<NcclEvent>(state_->channel, std::move(end), dev.stream()));
  }
  // In one group, so that no two of them wait for each other.
  static ncclResult_t exchange_blocks(ConstView<Cuda> in, View<Cuda> out, int ranks,
                                      ncclComm_t comm, cudaStream_t stream) {
    const auto count = count_of(in) / static_cast<std::size_t>(ranks);
    const auto bytes = count * size_of(in.dtype());
    const auto type = nccl_type(in.dtype());
    auto code = ncclGroupStart();
    const auto next = [&](ncclResult_t result) {
      if (result != ncclSuccess && result != ncclInProgress && code == ncclSuccess) code = result;
    };
    for (int other = 0; other < ranks; ++other) {
      const auto at = static_cast<std::size_t>(other) * bytes;
      next(ncclSend(in.bytes() + at, count, type, other, comm, stream));
      next(ncclRecv(out.bytes() + at, count, type, other, comm, stream));
    }
    const auto ended = ncclGroupEnd();
    return code == ncclSuccess ? ended : code;
  }
  [[nodiscard]] NcclMessages& messages(CallSite where) {
    if (!state_->messages)
      state_->messages.emplace(*state_->channel, state_->options.message_ctas, where);
    return *state_->messages;
  }
  [[nodiscard]] static std::shared_ptr<int> new_word() {
    int* word = nullptr;
    check_cuda(cudaMalloc(&word, sizeof *word), "cudaMalloc");
    return {word, [](int* old) { quietly(cudaFree(old)); }};
  }

  std::shared_ptr<State> state_;
  SelfComm<Cuda> self_;
};

/// The world of this process, which has one rank of it: collective over the processes. `id` is made by one of
/// them. Throws where the GPU is unusable, and after the time limit where a rank does not come.
[[nodiscard]] inline NcclComm nccl_world(const Cuda& dev, int rank, int size,
                                         const ncclUniqueId& id, NcclOptions options = {},
                                         CallSite where = CallSite::current()) {
  auto world = std::make_shared<WatchedWorld>(
      WatchedWorld::Options{.timeout_s = options.timeout_s, .deadlines = options.deadlines});
  return NcclComm(std::move(world), dev.number(), rank, size, id, options, where);
}

static_assert(Communicator<NcclComm, Cuda>);
static_assert(Communicator<Comm<Cuda>, Cuda>);

}  // namespace dhp
