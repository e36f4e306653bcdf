// The network check: bandwidth and latency of an all_reduce over all ranks, as the trainers report them at their start.
#pragma once

#include <dhp/comm/transport_report.hpp>

#include "examination.hpp"

namespace examples::doctor {

template <class Dev>
[[nodiscard]] Finding check_network(Examination<Dev>& exam) {
  if (exam.size() == 1) return skipped("network", "one rank has nobody to talk to");
  Finding finding;
  finding.check = "network";
  dhp::Mesh<Dev> mesh(exam.world, {.data = exam.size()});
  const std::int64_t bytes = (exam.options.quick ? 1 : 16) << 20;
  const auto report = dhp::measure_transports(
      exam.dev, mesh, exam.hosts[static_cast<std::size_t>(exam.rank())], bytes);
  const auto& axis = report.axes.front();
  const double gb_s = axis.bandwidth_bytes_per_s / 1e9, us = axis.latency_s * 1e6;
  const auto ranks = static_cast<std::size_t>(exam.size());
  finding.figures.push_back({"all_reduce", "GB/s", std::vector<double>(ranks, gb_s)});
  finding.figures.push_back({"smallest all_reduce", "us", std::vector<double>(ranks, us)});
  finding.summary = dhp::concat(axis.transport, axis.one_host ? "" : ", across hosts", "; of ",
                                bytes >> 20, " MiB");
  const auto judge = [&](Verdict verdict, const auto&... text) {
    if (verdict != Verdict::ok)
      finding.problems.push_back(
          {verdict,
           {},
           dhp::concat("an all_reduce over all ranks ", text...,
                       "; is this the right network interface, and is it free?")});
  };
  judge(below(gb_s, exam.limits().network_gb_s), "has ", three_digits(gb_s), " GB/s over ",
        axis.transport, ", less than the limit");
  judge(above(us, exam.limits().network_latency_us), "takes ", three_digits(us), " us over ",
        axis.transport, ", more than the limit");
  return finding;
}

}  // namespace examples::doctor
