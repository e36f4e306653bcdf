// --calibrate measures dhp_plan's input on these ranks: products, other operations, short operations, and the links of
// each axis. First one rank works, then all; the ratio of the rates shows how many ranks the cores can serve. Each rate
// is the best of three trials, because other programs can disturb a trial.
#pragma once

#include <dhp/comm/mesh.hpp>
#include <dhp/ops/activation.hpp>
#include <dhp/ops/attention.hpp>
#include <dhp/ops/layer_norm.hpp>

#include "../plan/cluster.hpp"
#include "../report/host_memory.hpp"
#include "../report/transport_report.hpp"
#include "compute.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

namespace examples::doctor {

/// Returns the FLOP/s of attention with dropout, forward and backward, in many heads. FLOP are counted like by
/// dhp::Meta.
template <class Dev>
[[nodiscard]] double attention_flop_per_s(Dev& dev, int runs) {
  using dhp::DType, dhp::Tensor;
  constexpr bool gpu = !Dev::host_accessible;
  constexpr int tokens = gpu ? 512 : 128, heads = gpu ? 512 : 8, columns = 64 * heads;
  const auto zeros = [&](DType type, const dhp::Shape& shape) {
    return Tensor<Dev>::zeros(dev, type, shape);
  };
  const auto like_q = [&] { return zeros(gpu ? DType::bf16 : DType::f32, {tokens, columns}); };
  const auto offsets = Tensor<Dev>::from_host(dev, {2}, std::vector{0, tokens});
  const auto length = Tensor<Dev>::from_host(dev, {1}, std::vector{tokens});
  const auto numbers = zeros(DType::i64, {tokens});
  const dhp::Sequences<Dev> sample{offsets, length, numbers, tokens};
  const dhp::AttentionOptions options{.heads = heads, .total_heads = heads, .dropout = 0.1};
  const auto q = like_q();
  auto y = like_q(), dq = like_q(), dk = like_q(), dv = like_q();
  auto sums = zeros(DType::f32, {heads, tokens});
  const double s = median_seconds(dev, runs, false, [&] {
    dhp::attention_forward(dev, q, q, q, sample, options, y.mut(), sums.mut());
    dhp::attention_backward(dev, q, q, q, q, y, sums, sample, options, dq.mut(), dk.mut(),
                            dv.mut());
  });
  return 12.0 * tokens * tokens * columns / s;
}

/// Returns this rank's FLOP/s in fp32, fp16, bf16 and attention with dropout, its bytes/s and its launches/s.
template <class Dev>
[[nodiscard]] std::vector<double> measured_rates(Dev& dev) {
  constexpr bool gpu = !Dev::host_accessible;
  constexpr int runs = 5;
  const auto zeros = [&](dhp::DType type, const dhp::Shape& shape) {
    return dhp::Tensor<Dev>::zeros(dev, type, shape);
  };
  const std::int64_t n = gpu ? 4096 : 256;  // a typical layer size
  const auto product = [&](dhp::DType type) {
    const auto a = zeros(type, {4 * n, n}), b = zeros(type, {n, n});
    auto c = zeros(type, {4 * n, n});
    const double s = median_seconds(dev, runs, false, [&] { dhp::gemm(dev, a, b, c.mut()); });
    return 8 * static_cast<double>(n * n) * static_cast<double>(n) / s;
  };
  std::vector<double> rates{product(dhp::DType::f32), product(dhp::DType::f16),
                            product(dhp::DType::bf16), attention_flop_per_s(dev, runs)};
  const std::int64_t rows = gpu ? 1 << 16 : 1 << 11, columns = gpu ? 1024 : 256;
  const auto x = zeros(dhp::DType::f32, {rows, columns}), one = zeros(dhp::DType::f32, {columns});
  auto y = zeros(dhp::DType::f32, {rows, columns});
  auto mean = zeros(dhp::DType::f32, {rows}), inverse = zeros(dhp::DType::f32, {rows});
  const double s = median_seconds(dev, runs, false, [&] {
    dhp::layer_norm_forward(dev, x, one, one, 1e-5, y.mut(), mean.mut(), inverse.mut());
    dhp::activation_forward(dev, dhp::Activation::gelu, x, y.mut());
  });
  rates.push_back(4 * static_cast<double>(x.view().size_bytes()) / s);
  auto few = zeros(dhp::DType::f32, {1, 64});
  rates.push_back(1 / median_seconds(dev, runs, false, [&] {
                    dhp::activation_forward(dev, dhp::Activation::relu, few.view(), few.mut());
                  }));
  return rates;
}

/// Measures the cluster, with the same result on all ranks. Collective.
template <class Dev>
[[nodiscard]] Cluster calibrated(Examination<Dev>& exam) {
  constexpr bool gpu = !Dev::host_accessible;
  auto& dev = exam.dev;
  constexpr std::size_t count = 6;  // number of rates
  std::vector<double> alone(count * static_cast<std::size_t>(exam.size())), together = alone;
  const auto keep_best = [&](std::vector<double>& best, bool works) {
    exam.world.barrier();
    const auto mine = works ? measured_rates(dev) : std::vector<double>(count);
    std::ranges::transform(best, gather(dev, exam.world, mine), best.begin(), std::ranges::max);
  };
  for (int trial = 0; trial < 3; ++trial) {
    keep_best(alone, exam.rank() == 0);
    keep_best(together, true);
  }
  int per_host = 0;  // ranks of the fullest host
  std::map<std::string, int> ranks_of;
  for (const auto& host : exam.hosts) per_host = std::max(per_host, ++ranks_of[host]);

  Cluster result;
  result.name = dhp::concat(dhp::detail::pluralize(per_host, "rank"), " a host, ", exam.kinds[0]);
  std::replace(result.name.begin(), result.name.end(), '"', ' ');
  result.devices = gpu || per_host < exam.size() ? per_host : result.devices;
  result.flop_32 = alone[0];
  result.flop_16 = alone[1];
  result.flop_bf16 = alone[2];
  result.flop_dropout = alone[3];
  result.bytes_per_s = alone[4];
  result.launch_s = 1 / alone[5];
  result.cores = 0;
  if (!gpu) {
    double rate = 0;
    for (std::size_t at = 0; at < together.size(); at += count) rate += together[at] / alone[0];
    const int cores = usable_cores();
    result.cores =
        per_host < cores ? cores : std::min<double>(rate * per_host / exam.size(), cores);
  }
  result.memory_bytes = static_cast<double>(host_memory_bytes());
  if constexpr (gpu) result.memory_bytes = static_cast<double>(dev.properties().totalGlobalMem);
  if (exam.size() == 1) return result;
  dhp::Mesh<Dev> mesh(exam.world, exam.options.run.layout);
  const auto report = measure_transports(dev, mesh, exam.host(exam.rank()), 4 << 20);
  for (const auto& axis : report.axes) {
    // The axis's latency is that of an all_reduce, which sends 2 * ceil(log2(ranks)) messages one after another.
    const examples::Link link{axis.latency_s / (2 * std::ceil(std::log2(axis.ranks))),
                              axis.bandwidth_bytes_per_s};
    (axis.one_host ? result.device : result.host) = link;
    if (!axis.one_host) result.rack = link;
  }
  return result;
}

}  // namespace examples::doctor
