// concept Communicator: a group of ranks and what they do together. Every collective is called by all ranks
// of the group in the same order, and returns an Event. A group of one is the identity, so that the
// program for one rank is the parallel program.
#pragma once

#include <dhp/comm/event.hpp>
#include <dhp/tensor/tensor.hpp>

#include <concepts>
#include <source_location>
#include <string>
#include <utility>

namespace dhp {

enum class Reduce { sum, max, min };

[[nodiscard]] constexpr const char* name_of(Reduce reduce) {
  switch (reduce) {
    case Reduce::sum: return "sum";
    case Reduce::max: return "max";
    case Reduce::min: return "min";
  }
  return "?";
}

/// The place of a call, for messages that say where a rank is missing.
using CallSite = std::source_location;

/// all_reduce works in place; sums of 16-bit types accumulate in float, sums of integers are exact.
/// reduce_scatter: `in` has size() blocks of out's shape. all_gather: `out` has size() blocks of in's shape.
/// send takes the tensor and copies nothing: who goes on to read it sends message.share(), and nobody writes into it. It
/// is asynchronous until send_capacity() messages to one rank have not been received, then it blocks; messages between
/// two ranks arrive in order. transport: what carries the bytes, for people. split: ranks of one colour form a group,
/// ordered by key; a negative colour joins none and gets a group of one.
template <class C, class Dev>
concept Communicator = requires(C& comm, Dev& dev, View<Dev> out, ConstView<Dev> in,
                                Tensor<Dev> message, CallSite where) {
  { comm.rank() } -> std::same_as<int>;
  { comm.size() } -> std::same_as<int>;
  { comm.send_capacity() } -> std::same_as<int>;
  { comm.transport() } -> std::same_as<std::string>;
  { comm.all_reduce(dev, out, Reduce::sum, where) } -> std::same_as<Event<Dev>>;
  { comm.reduce_scatter(dev, in, out, where) } -> std::same_as<Event<Dev>>;
  { comm.all_gather(dev, in, out, where) } -> std::same_as<Event<Dev>>;
  { comm.broadcast(dev, out, 0, where) } -> std::same_as<Event<Dev>>;
  { comm.all_to_all(dev, in, out, where) } -> std::same_as<Event<Dev>>;
  comm.send(dev, std::move(message), 0, where);
  comm.recv(dev, out, 0, where);
  comm.barrier(where);
  { comm.split(0, 0, where) } -> std::same_as<C>;
  comm.abort(std::string());
};

static_assert(!Communicator<int, int>);

}  // namespace dhp
