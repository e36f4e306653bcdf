// A trainer's options, the reports of its steps, and hooks into steps.
#pragma once

#include <dhp/data/batching.hpp>
#include <dhp/optim/learning_rate.hpp>
#include <dhp/parallel/trainable.hpp>

#include <cstdint>
#include <optional>
#include <vector>

namespace dhp {

struct TrainerOptions {
  LearningRate learning_rate{};
  double clip = 0;   ///< largest gradient norm; 0: no clipping
  double spike = 0;  ///< skips a step whose norm exceeds this multiple of the usual norm; 0: never
  std::optional<LossScaleOptions> loss_scale{};  ///< empty: dynamic from 2^16 for f16, else 1
  double batch_norm_momentum = 0.1;
  /// If the device can, records a step with the previous step's shapes, and replays it while shapes stay the same.
  /// Layers must not copy from or to the host then. Several ranks record only steps of promised shapes. Each rank needs
  /// its own process, because graphs of one process on several GPUs may wait for each other. Steps are not recorded if
  /// replicas exchange more than sums of gradients (Replicas).
  bool record = false;
};

struct StepReport {
  std::int64_t step = 0;  ///< counted from 1
  double loss = 0;
  std::vector<LossTerm> terms;
  double gradient_norm = 0;  ///< over the whole model, before clipping
  double learning_rate = 0, loss_scale = 1;
  /// True if gradients were not finite under a dynamic loss scale, if there was a spike, or if replicas asked to skip.
  bool skipped = false;
  bool spike = false;           ///< the norm exceeded the limit TrainerOptions::spike
  double usual_norm = 0;        ///< a moving average of the norm
  bool stop_requested = false;  ///< some rank asked to stop; all ranks see this in the same step
  bool replayed = false;        ///< a recorded graph ran the step (TrainerOptions::record)
};

/// A step in flight: its results on their way to the host, and its micro-batches, which a failed step repeats.
template <class Dev>
struct StepTicket {
  std::int64_t step = 0;  ///< counted from 1
  DataPosition from{};    ///< the position in the data at which it begins
  double learning_rate = 0;
  bool replayed = false;
  HostCopy losses{}, state{};
  StepBatches<Dev> mine{};
};

/// A hook around the forward and backward pass of some steps, such as a check of gradients. See Trainer::set_hook().
template <class Dev>
class StepHook {
 public:
  /// Runs forward and backward with the sums over replicas, and leaves the gradients in the store. Returns the losses
  /// of this replica's micro-batches. The hook may call it again, with any micro-batches.
  using Pass = FunctionRef<Tensor<Dev>(const Step<Dev>&)>;
  virtual ~StepHook() = default;
  /// Returns whether the hook handles a step, counted from 1; the same on all ranks. Such a step is not recorded.
  [[nodiscard]] virtual bool takes_part(std::int64_t step) const = 0;
  /// Returns the losses of pass(step) and leaves its gradients in the store. The update has not changed weights yet.
  [[nodiscard]] virtual Tensor<Dev> run(const Step<Dev>& step, Pass pass) = 0;
};

}  // namespace dhp
