// A model's predictions, in any layout of ranks: what score_bert and score_resnet50 do.
#pragma once

#include <dhp/default_device.hpp>

#include "../data/scoring.hpp"

namespace examples {

/// All ranks of this process, on the device of the build.
void start_scoring(const ScoreOptions& options, const Scoring& scoring,
                   const dhp::TrainingRun<dhp::DefaultDevice>::Describe& describe);

}  // namespace examples
