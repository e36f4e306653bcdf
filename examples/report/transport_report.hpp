// Transports and speeds of a mesh's axes, measured at the start, so that a slow network is found before training.
// Bandwidths are those of the ranks' links ("bus bandwidth"): n ranks that all-reduce B bytes in t seconds move
// 2 (n - 1) / n * B / t each way.
#pragma once

#include <dhp/comm/gather.hpp>
#include <dhp/comm/mesh.hpp>
#include <dhp/tensor/tensor.hpp>

#include "progress.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace examples {

struct AxisReport {
  std::string axis{};  ///< "data", "tensor", "context" or "pipeline"
  int ranks = 1;
  std::string transport{};
  bool one_host = true;              ///< every group of this axis is within one host
  double bandwidth_bytes_per_s = 0;  ///< bandwidth of the slowest group
  double latency_s = 0;              ///< time of the smallest all_reduce in the slowest group
  std::int64_t bytes = 0;            ///< message size of the bandwidth measurement

  /// Returns an error if the axis is too slow; else "".
  [[nodiscard]] std::string too_slow(double min_bytes_per_s) const {
    if (bandwidth_bytes_per_s >= min_bytes_per_s) return {};
    return dhp::concat(
        "the ", axis, " axis has ", short_number(bandwidth_bytes_per_s / 1e9), " GB/s over ",
        transport, ", less than the ", short_number(min_bytes_per_s / 1e9),
        " GB/s that were asked for; is this the right network interface, and is it free?");
  }
  /// Returns a warning about the axis; else "".
  [[nodiscard]] std::string doubt() const {
    if (axis != "tensor" || one_host) return {};
    return "the tensor axis, which talks most, crosses hosts; a --tensor-parallel that divides the "
           "ranks of a host keeps it inside";
  }
};

struct TransportReport {
  std::vector<std::string> hosts{};  ///< host of each rank of the world
  std::vector<AxisReport> axes{};    ///< axes of more than one rank

  /// Returns lines for the user.
  [[nodiscard]] std::vector<std::string> lines() const {
    std::vector<std::string> text;
    std::map<std::string, std::set<int>> by_host;
    for (std::size_t rank = 0; rank < hosts.size(); ++rank)
      by_host[hosts[rank]].insert(static_cast<int>(rank));
    for (const auto& [host, ranks] : by_host)
      text.push_back(
          dhp::concat("host ", host, ": ", ranks.size() == 1 ? "rank " : "ranks ", ranges(ranks)));
    for (const auto& axis : axes) {
      const auto mebibytes = axis.bytes >> 20;
      text.push_back(dhp::concat(axis.axis, " axis: ", axis.ranks, " ranks, ", axis.transport,
                                 axis.one_host ? "" : ", across hosts", "; ",
                                 short_number(axis.bandwidth_bytes_per_s / 1e9), " GB/s at ",
                                 mebibytes, " MiB, ", short_number(axis.latency_s * 1e6),
                                 " us for the smallest"));
      if (const auto doubt = axis.doubt(); !doubt.empty()) text.push_back("warning: " + doubt);
    }
    return text;
  }
  /// Throws if an axis is slower than this.
  void check_bandwidth(double min_bytes_per_s) const {
    for (const auto& axis : axes)
      if (const auto why = axis.too_slow(min_bytes_per_s); !why.empty()) dhp::fail("", why);
  }
};

/// Returns the greatest value of any rank.
template <class Dev>
double greatest(Dev& dev, dhp::Comm<Dev>& comm, double value) {
  return std::ranges::max(dhp::gather(dev, comm, {value}));
}

/// Returns the median seconds of several all_reduces.
template <class Dev>
double all_reduce_s(Dev& dev, dhp::Comm<Dev>& comm, std::int64_t count) {
  auto buffer = dhp::Tensor<Dev>::zeros(dev, dhp::DType::f32, dhp::Shape{count});
  std::vector<double> taken;
  const int warm_up = 2, rounds = count == 1 ? 41 : 7;  // a latency's median needs more rounds
  for (int round = 0; round < warm_up + rounds; ++round) {
    comm.barrier();
    const auto start = std::chrono::steady_clock::now();
    comm.all_reduce(dev, buffer.mut()).wait(dev);
    dev.synchronize();
    const std::chrono::duration<double> s = std::chrono::steady_clock::now() - start;
    if (round >= warm_up) taken.push_back(s.count());
  }
  std::sort(taken.begin(), taken.end());
  return taken[taken.size() / 2];
}

/// Measures all axes. All groups of an axis are measured at the same time, one axis after another. Collective over the
/// mesh. host: where this rank runs. bytes: the size that fits this rank's memory; the smallest of all ranks is sent.
template <class Dev>
[[nodiscard]] TransportReport measure_transports(Dev& dev, dhp::Mesh<Dev>& mesh,
                                                 const std::string& host,
                                                 std::int64_t bytes = 8 << 20) {
  TransportReport report;
  report.hosts = dhp::gather_texts(dev, mesh.world(), host);
  bytes = static_cast<std::int64_t>(-greatest(dev, mesh.world(), -static_cast<double>(bytes)));
  const std::pair<const char*, dhp::Comm<Dev>*> axes[] = {{"tensor", &mesh.tensor()},
                                                          {"context", &mesh.context()},
                                                          {"data", &mesh.data()},
                                                          {"pipeline", &mesh.pipeline()}};
  for (const auto& [name, comm] : axes) {
    if (comm->size() == 1) continue;
    AxisReport axis;
    axis.axis = name;
    axis.ranks = comm->size();
    axis.transport = comm->transport();
    axis.bytes = bytes;
    const auto hosts = dhp::gather_texts(dev, *comm, host);
    const bool several = std::ranges::count(hosts, host) < std::ssize(hosts);
    axis.one_host = greatest(dev, mesh.world(), several ? 1 : 0) == 0;
    axis.latency_s = greatest(dev, mesh.world(), all_reduce_s(dev, *comm, 1));
    const double s = greatest(dev, mesh.world(), all_reduce_s(dev, *comm, bytes / 4));
    const double moved = 2.0 * (axis.ranks - 1) / axis.ranks * static_cast<double>(bytes);
    axis.bandwidth_bytes_per_s = moved / s;
    report.axes.push_back(std::move(axis));
  }
  dev.memory().trim();  // no layer uses blocks of these sizes
  return report;
}

}  // namespace examples
