// The copies check: how fast each rank copies memory, with all ranks at it at the same time, as in training. What a
// rate counts is the bytes that are copied; each is read once and written once.
#pragma once

#include "examination.hpp"
#include "timing.hpp"

namespace examples::doctor {

template <class Dev>
[[nodiscard]] Finding check_copies(Examination<Dev>& exam) {
  Finding finding;
  finding.check = "copies";
  auto& dev = exam.dev;
  const bool slow = exam.fault("slow-copy");
  // Beyond caches; a GPU takes more to be busy for long enough to be measured.
  const std::size_t mebibytes = exam.options.quick ? 8 : 128;
  const std::size_t bytes = (mebibytes << 20) * (Dev::host_accessible ? 1 : 4);
  const int runs = exam.options.quick ? 7 : 9;
  const auto add = [&](const char* name, auto work) {
    exam.world.barrier();
    const double s = median_seconds(dev, runs, slow, work);
    finding.figures.push_back(
        gather_figure(exam, name, "GB/s", static_cast<double>(bytes) / s / 1e9));
    judge_rates(exam, finding.figures.back(), exam.limits().copy_slowdown,
                "is another program at work there, or is memory missing from a channel?", finding);
  };
  // Written to before they are measured: pages that nobody has written to are not there yet.
  std::vector<std::byte> host(bytes, std::byte{1});
  std::vector<std::byte> other(bytes, std::byte{2});
  add("host memory", [&] {
    std::memcpy(other.data(), host.data(), bytes);
    host.swap(other);  // a copy that is made twice of the same, a compiler makes once
  });
  if constexpr (!Dev::host_accessible) {
    const auto from = dev.allocate(bytes);
    const auto to = dev.allocate(bytes);
    dev.fill_zero(from.get(), bytes);
    add("GPU memory", [&] { dev.copy(to.get(), from.get(), bytes); });
    add("host to GPU", [&] { dev.copy_from_host(to.get(), host.data(), bytes); });
    add("GPU to host", [&] { static_cast<void>(dev.start_copy_to_host(from.get(), bytes)); });
  }
  finding.summary = dhp::concat("of ", bytes >> 20, " MiB, the median of ", runs);
  return finding;
}

}  // namespace examples::doctor
