// The communicator of emulated devices: the Cpu's, because their memory is in the host. Calls during a recording run
// when the recording is replayed.
#pragma once

#include <dhp/comm/comm.hpp>
#include <tests/cuda/emulator.hpp>

#include <string>

namespace tests {

class EmulatedComm {
 public:
  using Dev = Emulated;
  using CallSite = dhp::CallSite;
  explicit EmulatedComm(dhp::Comm<dhp::Cpu> comm) : comm_(std::move(comm)) {}

  [[nodiscard]] int rank() const { return comm_.rank(); }
  [[nodiscard]] int size() const { return comm_.size(); }
  [[nodiscard]] int send_capacity() const { return comm_.send_capacity(); }
  [[nodiscard]] std::string transport() const { return comm_.transport(); }

  dhp::Event<Dev> start(Dev& dev, const dhp::Collective<Dev>& collective) {
    return issue(dev, [on_host = dhp::Collective<dhp::Cpu>{collective.call, on_cpu(collective.in),
                                                           on_cpu(collective.out)}](
                          auto& comm, auto& cpu) { comm.start(cpu, on_host).wait(); });
  }
  void send(Dev& dev, const dhp::Tensor<Dev>& message, int to, CallSite where) {
    // The recording keeps the message's memory and sends a copy.
    issue(dev, [from = on_cpu(message.view()), to, where](auto& comm, auto& cpu) {
      dhp::Tensor<dhp::Cpu> sent(cpu, from.dtype(), from.shape());
      cpu.copy(sent.mut().bytes(), from.bytes(), from.size_bytes());
      comm.send(cpu, std::move(sent), to, where);
    });
  }
  void recv(Dev& dev, dhp::View<Dev> message, int from, CallSite where) {
    issue(dev, [=](auto& comm, auto& cpu) { comm.recv(cpu, on_cpu(message), from, where); });
  }
  void barrier(CallSite where) { comm_.barrier(where); }
  [[nodiscard]] EmulatedComm split(int color, int key, CallSite where) {
    return EmulatedComm(comm_.split(color, key, where));
  }
  void abort(const std::string& message) { comm_.abort(message); }

 private:
  template <class Byte>
  static dhp::BasicView<dhp::Cpu, Byte> on_cpu(const dhp::BasicView<Dev, Byte>& view) {
    return {view.bytes(), view.dtype(), view.shape()};
  }
  template <class Body>
  dhp::Event<Dev> issue(Dev& dev, Body body) {
    dev.issue([body, comm = comm_, cpu = cpu_]() mutable { body(comm, *cpu); });
    return {};
  }

  dhp::Comm<dhp::Cpu> comm_;
  std::shared_ptr<dhp::Cpu> cpu_ = std::make_shared<dhp::Cpu>(dhp::CpuOptions{.threads = 1});
};

static_assert(dhp::Communicator<EmulatedComm, Emulated>);

}  // namespace tests
