// Embedding lookup. The table may be one shard of a vocabulary: ids of other shards give zero rows, so that the sum
// over shards is the full result.
#pragma once

#include <dhp/tensor/view.hpp>

namespace dhp {

/// y[r] = table[ids[r] - first_id], or 0 if that row is not in this shard; table [V, C], ids i32 [R], y [R, C].
template <Device Dev>
void embedding_forward(Dev& dev, InView<Dev> table, InView<Dev> ids, std::int64_t first_id,
                       OutView<Dev> y) {
  check(table.shape().rank() == 2 && y.columns() == table.columns() && y.rows() == ids.count() &&
            y.dtype() == table.dtype(),
        "embedding: ", ids.count(), " rows of ", table.shape(), " of ", table.dtype(),
        " do not fit ", y.shape(), " of ", y.dtype());
  check(ids.dtype() == DType::i32, "embedding: ids are i32, not ", ids.dtype());
  gather_rows_on(dev, table, ids, first_id, false, y);
}

/// dtable [V, C] = beta * dtable; then dtable[ids[r] - first_id] += dy[r]; ids i32 [R], dy [R, C]. The order of these
/// additions depends only on ids.
template <Device Dev>
void embedding_backward(Dev& dev, InView<Dev> dy, InView<Dev> ids, std::int64_t first_id,
                        OutView<Dev> dtable, double beta) {
  check(dtable.shape().rank() == 2 && dy.columns() == dtable.columns() &&
            dy.rows() == ids.count() && dtable.dtype() == accumulation_type(dy.dtype()),
        "embedding: the gradient ", dy.shape(), " of ", dy.dtype(), " does not fit the table ",
        dtable.shape(), " of ", dtable.dtype());
  check(ids.dtype() == DType::i32, "embedding: ids are i32, not ", ids.dtype());
  scatter_add_rows_on(dev, dy, ids, first_id, false, dtable, beta);
}

}  // namespace dhp
