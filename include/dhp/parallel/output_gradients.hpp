// OutputGradients: supplies the gradients of a pipeline stage's output in place of the next stage.
#pragma once

#include <dhp/comm/comm.hpp>
#include <dhp/tensor/tensor.hpp>

namespace dhp::detail {

/// Base of gradient predictors (extra/synthetic_gradients.hpp), for PipelineParallel::take_gradients_from(). Used in
/// training only.
template <class Dev>
class OutputGradients {
 public:
  virtual ~OutputGradients() = default;
  /// Called before a step's first action. state: the StepState with the decision on the step before, or empty.
  virtual void begin_step(Dev& dev, ConstView<Dev> state) = 0;
  /// Called when the activation of a micro-batch goes to the next stage.
  virtual void sent(int micro_batch, const Tensor<Dev>& activation) = 0;
  /// Returns the gradient of that activation.
  [[nodiscard]] virtual Tensor<Dev> gradient(Dev& dev, int micro_batch) = 0;
  /// Called after a step's last action; receives all that the next stage has sent.
  virtual void end_step(Dev& dev) = 0;
};

/// A stage's output for a micro-batch, and the rank that sends back its gradients in the order of micro-batches.
template <class Dev>
struct StageOutput {
  Shape shape{};
  Comm<Dev> backward{};
  int next = 0;  ///< the sending rank
};

}  // namespace dhp::detail
