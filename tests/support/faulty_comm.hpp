// A communicator around another one. It has faults, or records its calls.
#pragma once

#include <dhp/comm/comm.hpp>
#include <tests/support/test.hpp>

namespace tests {

/// Passes each call on to `inner`, except where a fault replaces it.
class FaultyComm {
 public:
  struct Faults {
    /// Returns whether it has done the collective itself.
    std::function<bool(Cpu&, const Collective<Cpu>&)> start{};
    std::function<void(Comm<Cpu>& inner, Cpu&, View<Cpu>, int from)> recv{};
    std::function<void()> synchronize{};
    bool all_first = false;  ///< rank() is 0 on every rank
  };
  FaultyComm(Comm<Cpu> inner, Faults faults)
      : inner_(std::move(inner)), faults_(std::move(faults)) {}

  [[nodiscard]] int rank() const { return faults_.all_first ? 0 : inner_.rank(); }
  [[nodiscard]] int size() const { return inner_.size(); }
  [[nodiscard]] int send_capacity() const { return inner_.send_capacity(); }
  [[nodiscard]] std::string transport() const { return inner_.transport(); }
  Event<Cpu> start(Cpu& dev, const Collective<Cpu>& collective) {
    if (faults_.start && faults_.start(dev, collective)) return {};
    return inner_.start(dev, collective);
  }
  void send(Cpu& dev, Tensor<Cpu> message, int to, CallSite where) {
    inner_.send(dev, std::move(message), to, where);
  }
  void recv(Cpu& dev, View<Cpu> message, int from, CallSite where) {
    if (faults_.recv) faults_.recv(inner_, dev, message, from);
    else inner_.recv(dev, message, from, where);
  }
  void synchronize(Cpu& dev) {
    if (faults_.synchronize) faults_.synchronize();
    else inner_.synchronize(dev);
  }
  void barrier(CallSite where) { inner_.barrier(where); }
  [[nodiscard]] FaultyComm split(int color, int key, CallSite where) {
    return {inner_.split(color, key, where), faults_};
  }
  void abort(const std::string& message) { inner_.abort(message); }

 private:
  Comm<Cpu> inner_;
  Faults faults_;
};
inline Comm<Cpu> faulty(const Comm<Cpu>& inner, FaultyComm::Faults faults) {
  return Comm<Cpu>::of(FaultyComm(inner, std::move(faults)));
}

}  // namespace tests
