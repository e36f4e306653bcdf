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

/// start: begins a collective and returns an event of its end; `in` and `out` stay where they are until then.
/// send takes the tensor and copies nothing; message.share() keeps a second owner, which may only read. It is
/// asynchronous until send_capacity() messages to one rank have not been received, then it blocks. Messages between two
/// ranks arrive in order. barrier: the hosts meet, whatever their devices are at. split: ranks of one color form a
/// group, ordered by key; a negative color joins none and gets a group of one. transport: what carries the bytes, for
/// people. abort: ends every rank of the world with this message.
///
/// Where collectives are work of a device, which goes on with garbage when the world has ended, there is also
/// synchronize(dev): the host waits for the device, and hears whether what it has received is valid.
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
