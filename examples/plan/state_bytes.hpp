// Bytes of a rank's state, and bytes that replicas exchange, with ZeRO: stage 1 shards the optimizer state, stage 2
// also the gradients, stage 3 also the weights (docs/memory.md, docs/zero.md).
#pragma once

#include <dhp/comm/collective.hpp>

#include <cstdint>

namespace examples {

/// State of one rank.
struct StateBytes {
  double weights = 0, gradients = 0, optimizer = 0;
  [[nodiscard]] double sum() const { return weights + gradients + optimizer; }
};

/// The arguments are the bytes of a rank without ZeRO. In stage 1 a rank also holds the summed gradients of its share.
[[nodiscard]] inline StateBytes state_bytes(double weights, double gradients, double optimizer,
                                            int replicas, int zero) {
  return {weights / (zero >= 3 ? replicas : 1),
          (zero <= 1 ? gradients : 0) + (zero >= 1 ? gradients / replicas : 0),
          optimizer / (zero >= 1 ? replicas : 1)};
}

/// Bytes that a rank sends to its replicas in a step. For stage 3 this is an upper bound: if the next pass begins with
/// the last two buckets of a pass, they stay in memory and are not gathered again.
[[nodiscard]] inline double data_bytes(double gradients, double weights, int replicas, int zero,
                                       int micro_batches) {
  using dhp::CallKind;
  const auto sent = [&](CallKind kind, double bytes) {
    return dhp::sent_bytes(kind, static_cast<std::int64_t>(bytes), replicas);
  };
  const double scattered = sent(CallKind::reduce_scatter, gradients);
  const double gathered = sent(CallKind::all_gather, weights / replicas);
  switch (zero) {
    case 0: return sent(CallKind::all_reduce, gradients);
    case 1: return scattered + gathered;
    case 2: return micro_batches * scattered + gathered;
    default: return micro_batches * (scattered + 2 * gathered);
  }
}

}  // namespace examples
