#pragma once

#include <dhp/cpu/elementwise.hpp>
#include <dhp/cpu/rows.hpp>
#include <dhp/ops/embedding.hpp>

namespace dhp::detail {

void embedding_forward_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> table, ConstView<Cpu> ids,
                          std::int64_t first_id, View<Cpu> y) {
  cpu::copy_rows(dev, table, ids, first_id, y);
}
void embedding_backward_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> dy, ConstView<Cpu> ids,
                           std::int64_t first_id, View<Cpu> dtable, double beta) {
  if (beta == 0) fill_on(dev, dtable, 0);
  else if (beta != 1) scale_on(dev, beta, dtable);
  visit_floating(dy.dtype(), [&]<class T, class A>(Tags<T, A>) {
    cpu::add_rows<A, T, A>(dev, dy, ids, first_id, dtable);
  });
}

}  // namespace dhp::detail
