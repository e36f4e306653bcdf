// A trainer's inputs, and the results of its steps.
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
  double spike = 0;  ///< skips a step whose gradient norm is more times the usual one; 0: none
  std::optional<LossScaleOptions> loss_scale{};  ///< none: dynamic from 2^16 for f16, 1 for others
  double batch_norm_momentum = 0.1;
  /// If the device can, a step with the shapes of the previous one is recorded, and replayed as long as shapes
  /// stay. Layers may then copy nothing from or to the host. Several ranks record only steps of promised shapes;
  /// each must be a process of its own, since graphs of one process on several GPUs may wait for each other. Steps
  /// whose replicas exchange more than the sums of gradients (Replicas) are not recorded.
  bool record = false;
};

struct StepReport {
  std::int64_t step = 0;  ///< counted from 1
  double loss = 0;
  std::vector<LossTerm> terms;
  double gradient_norm = 0;  ///< over the whole model, before clipping
  double learning_rate = 0, loss_scale = 1;
  /// Gradients were not finite under a dynamic loss scale, or a spike, or replicas ask for it.
  bool skipped = false;
  bool spike = false;           ///< the norm is out of proportion to the usual one
  double usual_norm = 0;        ///< a moving average
  bool stop_requested = false;  ///< by any rank; all ranks hear of it in the same step
  bool replayed = false;        ///< as a recorded graph (TrainerOptions::record)
};

/// A step under way: copies to the host, and its micro-batches in case it failed.
template <class Dev>
struct StepTicket {
  std::int64_t step = 0;  ///< counted from 1
  double learning_rate = 0;
  bool replayed = false;
  HostCopy losses, state;
  StepBatches<Dev> mine;
};

/// A hook around the forward and backward pass of some steps, such as a check of what they give. It goes to
/// Trainer::set_hook().
template <class Dev>
class StepHook {
 public:
  /// Forward and backward with the sums over replicas, which leaves the gradients in the store. Returns the losses of
  /// this replica's micro-batches. It may be called again, over any micro-batches.
  using Pass = FunctionRef<Tensor<Dev>(const Step<Dev>&)>;
  virtual ~StepHook() = default;
  /// Whether it takes part in a step, counted from 1; the same on all ranks. Such a step is not recorded.
  [[nodiscard]] virtual bool takes_part(std::int64_t step) const = 0;
  /// Returns the losses of pass(step), and leaves its gradients. Weights are those before the update.
  [[nodiscard]] virtual Tensor<Dev> run(const Step<Dev>& step, Pass pass) = 0;
};

}  // namespace dhp
