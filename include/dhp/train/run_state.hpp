// RunState: the state of a run besides its tensors. One visit() serves saving, loading and sending.
#pragma once

#include <dhp/ops/step.hpp>

#include <cstdint>
#include <string>

namespace dhp {

/// The best value of a measure so far, for early stopping.
struct BestMeasure {
  std::string measure{};  ///< empty before the first evaluation
  double best = 0;
  std::int64_t best_step = 0;       ///< step of the evaluation that found it
  std::int64_t step = -1;           ///< step of the last evaluation; -1: none
  std::int64_t without_better = 0;  ///< evaluations in a row without a better value

  static void visit(auto& self, auto&& field) {
    field("measure", self.measure);
    field("best", self.best);
    field("best_step", self.best_step);
    field("step", self.step);
    field("without_better", self.without_better);
  }
};

struct RunState {
  std::int64_t step = 0;              ///< last finished step, from 1; skipped steps count
  std::int64_t samples = 0;           ///< samples taken from the data in all epochs; -1: not known
  std::int64_t batches_before = 0;    ///< batches counted by the batch norms of loaded weights
  StepState device{.loss_scale = 0};  ///< a loss scale of 0 means the options' loss scale
  BestMeasure best{};

  /// Calls field(name, value) for each field.
  static void visit(auto& self, auto&& field) {
    field("steps", self.step);
    field("updates", self.device.updates);
    field("batches_before", self.batches_before);
    field("loss_scale", self.device.loss_scale);
    field("good_steps", self.device.good_steps);
    field("usual_norm", self.device.usual_norm);
    field("spikes", self.device.spikes);
    field("samples", self.samples);
    field("best", self.best);
  }
};

}  // namespace dhp
