// SelfComm: the group of one. Every collective is the identity.
#pragma once

#include <dhp/comm/communicator.hpp>
#include <dhp/device/cpu.hpp>

#include <string>

namespace dhp {

template <Device Dev>
class SelfComm {
 public:
  [[nodiscard]] int rank() const { return 0; }
  [[nodiscard]] int size() const { return 1; }
  [[nodiscard]] int send_capacity() const { return 1; }
  [[nodiscard]] std::string transport() const { return "none"; }

  Event<Dev> all_reduce(Dev&, View<Dev>, Reduce = Reduce::sum, CallSite = CallSite::current()) {
    return {};
  }
  Event<Dev> reduce_scatter(Dev& dev, ConstView<Dev> in, View<Dev> out,
                            CallSite = CallSite::current()) {
    return copy(dev, in, out);
  }
  Event<Dev> all_gather(Dev& dev, ConstView<Dev> in, View<Dev> out,
                        CallSite = CallSite::current()) {
    return copy(dev, in, out);
  }
  Event<Dev> broadcast(Dev&, View<Dev>, int root, CallSite = CallSite::current()) {
    check(root == 0, "broadcast: no rank ", root, " in a group of 1");
    return {};
  }
  Event<Dev> all_to_all(Dev& dev, ConstView<Dev> in, View<Dev> out,
                        CallSite = CallSite::current()) {
    return copy(dev, in, out);
  }
  void send(Dev&, Tensor<Dev>, int to, CallSite = CallSite::current()) {
    fail("a group of one has nobody to send to, rank ", to, " was asked for");
  }
  void recv(Dev&, View<Dev>, int from, CallSite = CallSite::current()) {
    fail("a group of one has nobody to receive from, rank ", from, " was asked for");
  }
  void barrier(CallSite = CallSite::current()) {}
  [[nodiscard]] SelfComm split(int, int, CallSite = CallSite::current()) { return {}; }
  /// There is nobody else to end: throws Error(message).
  [[noreturn]] void abort(const std::string& message) { throw Error(message); }

 private:
  Event<Dev> copy(Dev& dev, ConstView<Dev> in, View<Dev> out) {
    check(in.dtype() == out.dtype() && in.count() == out.count(), "a group of one copies ",
          in.shape(), " of ", in.dtype(), " to ", out.shape(), " of ", out.dtype());
    if (out.bytes() != in.bytes()) dev.copy(out.bytes(), in.bytes(), in.size_bytes());
    return {};
  }
};

static_assert(Communicator<SelfComm<Cpu>, Cpu>);
static_assert(!Communicator<Cpu, Cpu>);

}  // namespace dhp
