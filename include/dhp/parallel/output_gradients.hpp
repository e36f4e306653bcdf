// OutputGradients: what gives a pipeline stage the gradients of its output in place of the next stage.
#pragma once

#include <dhp/comm/comm.hpp>
#include <dhp/tensor/tensor.hpp>

namespace dhp::detail {

/// Base of predictors of gradients (extra/synthetic_gradients.hpp), for PipelineParallel::take_gradients_from(). It is
/// used in training only.
template <class Dev>
class OutputGradients {
 public:
  virtual ~OutputGradients() = default;
  /// Is called when the activation of a micro-batch goes to the next stage.
  virtual void sent(int micro_batch, const Tensor<Dev>& activation) = 0;
  /// Returns the gradient of that activation.
  [[nodiscard]] virtual Tensor<Dev> gradient(Dev& dev, int micro_batch) = 0;
  /// Is called after a step's last action, and receives all that the next stage has sent.
  virtual void end_step(Dev& dev) = 0;
};

/// A stage's output for a micro-batch, and the rank that sends back its gradients in the order of micro-batches.
template <class Dev>
struct StageOutput {
  Shape shape{};
  Comm<Dev> backward{};
  int next = 0;  ///< the rank that sends
};

}  // namespace dhp::detail
