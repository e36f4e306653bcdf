// Ranks of any device as threads of this process, each with its own device. Devices other than the Cpu exchange through
// the host, so that several ranks run on an emulated device or on one GPU. NCCL is tested in comm/nccl/nccl_comm.cpp.
#pragma once

#include <dhp/watch.hpp>
#include <tests/support/tensors.hpp>

#include <concepts>

namespace tests {

/// A communicator that copies messages to the host and back; synchronous. Calls during a recording run when an emulated
/// device replays it.
template <class Dev>
class HostComm {
 public:
  explicit HostComm(Comm<Cpu> hosts) : hosts_(std::move(hosts)) {}

  [[nodiscard]] int rank() const { return hosts_.rank(); }
  [[nodiscard]] int size() const { return hosts_.size(); }
  [[nodiscard]] int send_capacity() const { return hosts_.send_capacity(); }
  [[nodiscard]] std::string transport() const { return "the host"; }

  Event<Dev> start(Dev& dev, const Collective<Dev>& collective) {
    issue(dev, [&dev, collective](Comm<Cpu>& hosts) {
      const auto& [call, in, out] = collective;
      Cpu cpu;
      auto from = to_host(cpu, dev, in);
      const bool in_place = call.kind == CallKind::all_reduce || call.kind == CallKind::broadcast;
      Tensor<Cpu> other(cpu, out.dtype(), in_place ? Shape{0} : out.shape());
      auto& to = in_place ? from : other;
      hosts.start(cpu, {call, from, to.mut()}).wait();
      put(dev, to, out);
    });
    return {};
  }
  void send(Dev& dev, const Tensor<Dev>& message, int to, CallSite where) {
    // A recording keeps the message's memory.
    issue(dev, [&dev, message = message.view(), to, where](Comm<Cpu>& hosts) {
      Cpu cpu;
      hosts.send(cpu, to_host(cpu, dev, message), to, where);
    });
  }
  void recv(Dev& dev, View<Dev> message, int from, CallSite where) {
    issue(dev, [&dev, message, from, where](Comm<Cpu>& hosts) {
      Cpu cpu;
      Tensor<Cpu> host(cpu, message.dtype(), message.shape());
      hosts.recv(cpu, host.mut(), from, where);
      put(dev, host, message);
    });
  }
  void barrier(CallSite where) { hosts_.barrier(where); }
  [[nodiscard]] HostComm split(int color, int key, CallSite where) {
    return HostComm(hosts_.split(color, key, where));
  }
  void abort(const std::string& message) { hosts_.abort(message); }

 private:
  void issue(Dev& dev, auto work) {
    if constexpr (Dev::host_accessible)
      dev.issue([work, hosts = hosts_]() mutable { work(hosts); });
    else work(hosts_);
  }
  static Tensor<Cpu> to_host(Cpu& cpu, Dev& dev, ConstView<Dev> from) {
    Tensor<Cpu> result(cpu, from.dtype(), from.shape());
    dev.copy_to_host(result.mut().bytes(), from.bytes(), from.size_bytes());
    return result;
  }
  static void put(Dev& dev, const Tensor<Cpu>& from, View<Dev> to) {
    dev.copy_from_host(to.bytes(), from.view().bytes(), to.size_bytes());
  }

  Comm<Cpu> hosts_;
};

/// A deterministic device, small enough that many ranks share one GPU. `threads` matters for a Cpu only.
template <class Dev>
[[nodiscard]] Dev make_device(int threads = 1) {
  if constexpr (std::same_as<Dev, Cpu>) return Cpu({.threads = threads});
  else if constexpr (Dev::host_accessible) return Dev();
  else return Dev({.pinned_bytes = 1 << 20, .workspace_bytes = 4 << 20, .deterministic = true});
}

/// Runs body(dev, world) on each rank.
template <class Dev, class Body>
void on_ranks_of(int ranks, Body body, int threads = 1) {
  constexpr double timeout_s = std::same_as<Dev, Cpu> ? 60 : 300;  // emulated devices are slow
  run_ranks(ranks,
            [&](Comm<Cpu> world) {
              auto dev = make_device<Dev>(threads);
              if constexpr (std::same_as<Dev, Cpu>) body(dev, std::move(world));
              else if (world.size() == 1) body(dev, Comm<Dev>());
              else body(dev, Comm<Dev>::of(HostComm<Dev>(std::move(world))));
            },
            {.timeout_s = timeout_s});
}

}  // namespace tests
