// Communicator is the concept of a group of ranks, modeled by the engines (threads, MPI, Gloo, NCCL) or by a class of
// your own. All ranks of a group make the same calls in the same order. The helpers below serve all engines.
#pragma once

#include <dhp/comm/collective.hpp>
#include <dhp/comm/event.hpp>
#include <dhp/tensor/tensor.hpp>

#include <algorithm>
#include <atomic>
#include <concepts>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace dhp {

namespace detail {
template <class C>
concept HasRankAndSize = requires(C& comm) {
  { comm.rank() } -> std::same_as<int>;
  { comm.size() } -> std::same_as<int>;
  { comm.send_capacity() } -> std::same_as<int>;
};
template <class C, class Dev>
concept HasStart = requires(C& comm, Dev& dev, const Collective<Dev>& collective) {
  { comm.start(dev, collective) } -> std::same_as<Event<Dev>>;
};
template <class C, class Dev>
concept HasSendAndRecv = requires(C& comm, Dev& dev, Tensor<Dev> message, View<Dev> buffer,
                                  CallSite where) {
  comm.send(dev, std::move(message), 0, where);
  comm.recv(dev, buffer, 0, where);
};
template <class C>
concept HasGroupCalls = requires(C& comm, CallSite where) {
  { comm.transport() } -> std::same_as<std::string>;
  comm.barrier(where);
  { comm.split(0, 0, where) } -> std::same_as<C>;
  comm.abort(std::string());
};

[[nodiscard]] inline std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(as_size(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

/// The arguments of one rank to split().
struct ColorKey {
  std::int32_t color = 0, key = 0;
};

/// Returns rank `rank`'s new group as ranks of this group, in the order of MPI_Comm_split. color_keys: one per rank.
[[nodiscard]] inline std::vector<int> part_with(int rank, const std::vector<ColorKey>& color_keys) {
  const auto color_key = [&](int of) { return color_keys[as_size(of)]; };
  const auto earlier = [&](std::int32_t key, int than) { return key < color_key(than).key; };
  std::vector<int> part;
  for (int other = 0; other < static_cast<int>(color_keys.size()); ++other)
    if (other == rank ||
        (color_key(rank).color >= 0 && color_key(other).color == color_key(rank).color))
      part.insert(std::upper_bound(part.begin(), part.end(), color_key(other).key, earlier), other);
  return part;
}

/// Marks a communicator as in use by this thread. Throws Error if another thread of the rank is using the communicator.
class ExclusiveUse : NonCopyable {
 public:
  ExclusiveUse(std::atomic<bool>& in_use, CallKind kind, CallSite where) : in_use_(in_use) {
    check(!in_use.exchange(true), {name_of(kind), where}, " at ", where,
          ": another thread of this rank is using the communicator; split off one for each thread");
  }
  ~ExclusiveUse() { in_use_ = false; }

 private:
  std::atomic<bool>& in_use_;
};

}  // namespace detail

/// start: begins a collective and returns its event; `in` and `out` must stay in place until the event is done.
/// send: takes the tensor without a copy; message.share() keeps a second, read-only owner. send is asynchronous until
/// send_capacity() messages to one rank are unreceived, then it blocks. Messages between two ranks stay in order.
/// barrier: synchronizes the hosts, not their devices. split: ranks of one color form a group, ordered by key; a rank
/// with a negative color gets a group of one. transport: the engine's name. abort: stops all ranks of the world.
///
/// Optional members: expect(dev, dtype, shape, from, where) begins the next recv; engines have it if a message stays
/// with its sender until it is received. synchronize(dev) makes the host wait for the device; engines have it if their
/// collectives run on the device. It throws if the world has ended, because received data may then be garbage.
template <class C, class Dev>
concept Communicator = detail::HasRankAndSize<C> && detail::HasStart<C, Dev> &&
    detail::HasSendAndRecv<C, Dev> && detail::HasGroupCalls<C>;

}  // namespace dhp
