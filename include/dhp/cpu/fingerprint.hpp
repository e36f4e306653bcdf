#pragma once

#include <dhp/device/cpu.hpp>
#include <dhp/ops/fingerprint.hpp>

#include <atomic>

namespace dhp::detail {

void fingerprint_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> x, std::int64_t first,
                    View<Cpu> sum, std::int64_t times) {
  visit_bits(x, [&]<class Bits>(const Bits* bits) {
    constexpr std::int64_t tile = 1 << 14;
    std::atomic<std::uint64_t> total{0};
    dev.for_ranges(x.count(), tile, [&](std::int64_t begin, std::int64_t end) {
      std::uint64_t part = 0;
      for (auto at = begin; at < end; ++at) part += bits[at] * fingerprint_factor(first + at);
      total += part;
    });
    *reinterpret_cast<std::uint64_t*>(sum.bytes()) += static_cast<std::uint64_t>(times) * total;
  });
}

}  // namespace dhp::detail
