// Sizes of a rank's state and of what its replicas exchange with ZeRO: stage 1 shards the optimizer, 2 the
// gradients, 3 the weights (docs/memory.md, docs/zero.md).
#pragma once

#include <dhp/comm/collective.hpp>

#include <cstdint>

namespace examples {

/// Per rank.
struct StateBytes {
  double weights = 0, gradients = 0, optimizer = 0;
  [[nodiscard]] double sum() const { return weights + gradients + optimizer; }
};

/// Given those of a rank without ZeRO. In stage 1 the summed gradients lie beside the others.
[[nodiscard]] inline StateBytes state_bytes(double weights, double gradients, double optimizer,
                                            int replicas, int zero) {
  return {weights / (zero >= 3 ? replicas : 1),
          (zero <= 1 ? gradients : 0) + (zero >= 1 ? gradients / replicas : 0),
          optimizer / (zero >= 1 ? replicas : 1)};
}

struct DataExchange {
  double bytes = 0;  ///< that a rank sends in a step
  double calls = 0;  ///< for each bucket, in all-reduces: others are half of one
};

/// Stage 3: at most; a bucket that the next pass needs first stays.
[[nodiscard]] inline DataExchange data_bytes(double gradients, double weights, int replicas,
                                             int zero, int micro_batches) {
  using dhp::CallKind;
  const auto sent = [&](CallKind kind, double bytes) {
    return dhp::sent_bytes(kind, static_cast<std::int64_t>(bytes), replicas);
  };
  const double scattered = sent(CallKind::reduce_scatter, gradients);
  const double gathered = sent(CallKind::all_gather, weights / replicas);
  const double times = micro_batches;
  switch (zero) {
    case 0: return {sent(CallKind::all_reduce, gradients), 1};
    case 1: return {scattered + gathered, 1};
    case 2: return {times * scattered + gathered, (times + 1) / 2};
    default: return {times * (scattered + 2 * gathered), times * 3 / 2};
  }
}

}  // namespace examples
