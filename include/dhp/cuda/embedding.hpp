#pragma once

#include <dhp/cuda/rows.hpp>
#include <dhp/cuda/sum_rows.hpp>
#include <dhp/ops/embedding.hpp>

namespace dhp::detail {

template <KernelDevice Dev>
void embedding_forward_on(Dev& dev, ConstView<Dev> table, ConstView<Dev> ids, std::int64_t first_id,
                          View<Dev> y) {
  cuda::take_rows(dev, table, ids, first_id, false, y);
}
/// Adds an entry's rows in the order of cuda/sum_rows.hpp. This order depends only on these rows, so vocabulary shards
/// give the same bits as the whole table.
template <KernelDevice Dev>
void embedding_backward_on(Dev& dev, ConstView<Dev> dy, ConstView<Dev> ids, std::int64_t first_id,
                           View<Dev> dtable, double beta) {
  visit_floating(dy.dtype(), [&]<class T>(TypeTag<T>) {
    cuda::sum_rows<T, Accumulator<T>>(dev, dy, ids, first_id, beta, dtable);
  });
}

}  // namespace dhp::detail
