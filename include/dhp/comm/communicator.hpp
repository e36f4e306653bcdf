// concept Communicator: a group of ranks and its operations. The engines (threads, MPI, Gloo, NCCL) implement it; so
// can you. All ranks of a group make the same calls in the same order.
#pragma once

#include <dhp/comm/collective.hpp>
#include <dhp/comm/event.hpp>
#include <dhp/tensor/tensor.hpp>

#include <concepts>
#include <string>
#include <utility>

namespace dhp {

/// start: begins a collective and returns its event; `in` and `out` must stay in place until then.
/// send: takes the tensor without a copy; message.share() keeps a second owner, which may only read. It is asynchronous
/// until send_capacity() messages to one rank are unreceived, then it blocks. Messages between two ranks stay in order.
/// barrier: synchronizes the hosts, not their devices. split: ranks of one color form a group, ordered by key; a rank
/// with a negative color gets a group of one. transport: a name for messages. abort: stops every rank of the world.
///
/// Engines whose collectives are work of the device also have synchronize(dev): the host waits for the device, and it
/// throws if the world has ended, because received data may then be garbage.
template <class C, class Dev>
concept Communicator = requires(C& comm, Dev& dev, const Collective<Dev>& collective,
                                Tensor<Dev> message, View<Dev> buffer, CallSite where) {
  { comm.rank() } -> std::same_as<int>;
  { comm.size() } -> std::same_as<int>;
  { comm.send_capacity() } -> std::same_as<int>;
  { comm.transport() } -> std::same_as<std::string>;
  { comm.start(dev, collective) } -> std::same_as<Event<Dev>>;
  comm.send(dev, std::move(message), 0, where);
  comm.recv(dev, buffer, 0, where);
  comm.barrier(where);
  { comm.split(0, 0, where) } -> std::same_as<C>;
  comm.abort(std::string());
};

static_assert(!Communicator<int, int>);

}  // namespace dhp
