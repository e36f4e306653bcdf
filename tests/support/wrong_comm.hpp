// A communicator around another one. It has faults, or records its calls.
#pragma once

#include <dhp/comm/comm.hpp>
#include <tests/support/test.hpp>

namespace tests {

/// Passes each call on to `right`, except where a fault replaces it.
class WrongComm {
 public:
  struct Faults {
    /// Returns whether it has done the collective itself.
    std::function<bool(Cpu&, const Collective<Cpu>&)> start{};
    std::function<void(Comm<Cpu>& right, Cpu&, View<Cpu>, int from)> recv{};
    std::function<void()> synchronize{};
    bool all_first = false;  ///< rank() is 0 on every rank
  };
  WrongComm(Comm<Cpu> right, Faults faults)
      : right_(std::move(right)), faults_(std::move(faults)) {}

  [[nodiscard]] int rank() const { return faults_.all_first ? 0 : right_.rank(); }
  [[nodiscard]] int size() const { return right_.size(); }
  [[nodiscard]] int send_capacity() const { return right_.send_capacity(); }
  [[nodiscard]] std::string transport() const { return right_.transport(); }
  Event<Cpu> start(Cpu& dev, const Collective<Cpu>& collective) {
    if (faults_.start && faults_.start(dev, collective)) return {};
    return right_.start(dev, collective);
  }
  void send(Cpu& dev, Tensor<Cpu> message, int to, CallSite where) {
    right_.send(dev, std::move(message), to, where);
  }
  void recv(Cpu& dev, View<Cpu> message, int from, CallSite where) {
    if (faults_.recv) faults_.recv(right_, dev, message, from);
    else right_.recv(dev, message, from, where);
  }
  void synchronize(Cpu& dev) {
    if (faults_.synchronize) faults_.synchronize();
    else right_.synchronize(dev);
  }
  void barrier(CallSite where) { right_.barrier(where); }
  [[nodiscard]] WrongComm split(int color, int key, CallSite where) {
    return {right_.split(color, key, where), faults_};
  }
  void abort(const std::string& message) { right_.abort(message); }

 private:
  Comm<Cpu> right_;
  Faults faults_;
};
inline Comm<Cpu> wrong(const Comm<Cpu>& right, WrongComm::Faults faults) {
  return Comm<Cpu>::of(WrongComm(right, std::move(faults)));
}

}  // namespace tests
