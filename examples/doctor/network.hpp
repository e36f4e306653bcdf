// The network check: bandwidth and latency of an all_reduce over each axis of the mesh, by the measurement with which
// trainers begin. All groups of an axis are measured at the same time.
#pragma once

#include <dhp/comm/mesh.hpp>

#include "../report/transport_report.hpp"
#include "examination.hpp"

namespace examples::doctor {

template <class Dev>
[[nodiscard]] Finding check_network(Examination<Dev>& exam) {
  if (exam.size() == 1) return skipped("one rank has no partner");
  Finding finding;
  dhp::Mesh<Dev> mesh(exam.world, exam.options.run.mesh);
  const std::int64_t bytes = (exam.options.quick ? 1 : 16) << 20;
  const auto& host = exam.hosts[static_cast<std::size_t>(exam.rank())];
  const auto report = measure_transports(exam.dev, mesh, host, bytes);
  finding.notes.push_back(dhp::concat("all_reduce of ", bytes >> 20, " MiB, and of one number"));
  for (const auto& axis : report.axes) {
    finding.notes.push_back(dhp::concat(axis.axis, " axis: groups of ", axis.ranks, " ranks, ",
                                        axis.transport, axis.one_host ? "" : ", across hosts"));
    finding.figures.push_back({axis.axis + " axis", "GB/s", {axis.bandwidth_bytes_per_s / 1e9}});
    finding.figures.push_back({axis.axis + " latency", "us", {axis.latency_s * 1e6}});
    if (const auto why = axis.too_slow(1e9 * exam.options.run.min_bandwidth_gb_s); !why.empty())
      finding.problems.push_back({Verdict::failed, {}, why});
    if (const auto doubt = axis.doubt(); !doubt.empty())
      finding.problems.push_back({Verdict::warning, {}, doubt});
  }
  return finding;
}

}  // namespace examples::doctor
