#pragma once

#include <dhp/device/cpu.hpp>
#include <dhp/ops/embedding.hpp>

#include <algorithm>
#include <cstring>

namespace dhp::detail {

void embedding_forward_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> table, ConstView<Cpu> ids,
                          std::int64_t first_id, View<Cpu> y) {
  const auto bytes = as_size(table.columns()) * size_of(table.dtype());
  const auto entries = table.shape()[0];
  const auto* id = ids.data<std::int32_t>();
  dev.for_ranges(ids.count(), 64, [&](std::int64_t first, std::int64_t last) {
    for (auto row = first; row < last; ++row) {
      const auto entry = id[row] - first_id;
      auto* to = y.bytes() + as_size(row) * bytes;
      if (entry >= 0 && entry < entries)
        std::memcpy(to, table.bytes() + as_size(entry) * bytes, bytes);
      else std::memset(to, 0, bytes);
    }
  });
}
void embedding_backward_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> dy, ConstView<Cpu> ids,
                           std::int64_t first_id, View<Cpu> dtable, double beta) {
  visit_floating(dy.dtype(), [&]<class T, class A>(Tags<T, A>) {
    const auto rows = dy.rows(), columns = dy.columns(), entries = dtable.shape()[0];
    const T* const gradient = dy.data<T>();
    const auto* const id = ids.data<std::int32_t>();
    A* const sums = dtable.data<A>();
    if (beta != 1)
      dev.for_ranges(entries * columns, 1 << 16, [=](std::int64_t first, std::int64_t last) {
        if (beta == 0) std::fill(sums + first, sums + last, A(0));
        else
          for (auto at = first; at < last; ++at) sums[at] *= static_cast<A>(beta);
      });
    // Threads share columns, not rows, because several rows may have the same id.
    dev.for_ranges(columns, 64, [=](std::int64_t first, std::int64_t last) {
      for (std::int64_t row = 0; row < rows; ++row) {
        const auto entry = id[row] - first_id;
        if (entry < 0 || entry >= entries) continue;
        A* to = sums + entry * columns;
        const T* from = gradient + row * columns;
        for (auto c = first; c < last; ++c) to[c] += static_cast<A>(from[c]);
      }
    });
  });
}

}  // namespace dhp::detail
