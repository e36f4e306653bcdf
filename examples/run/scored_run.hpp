// Runs a model's predictions in any layout of ranks, for score_bert, score_gpt and score_resnet50.
#pragma once

#include <dhp/data/loader.hpp>
#include <dhp/default_device.hpp>

#include "../data/scoring.hpp"

#include <functional>
#include <string>

namespace examples {

/// A rank with its part of the model.
struct ScoredRun {
  dhp::TrainingRun<dhp::DefaultDevice>& run;
  dhp::Loader<dhp::DefaultDevice, AnyBatcher>& loader;  ///< loads the samples
  std::function<void(const std::string&)> log;          ///< prints on rank 0
};
using DescribeScored = dhp::TrainingRun<dhp::DefaultDevice>::Describe;

/// Loads the model on all ranks of this process, on the device of the build, and runs body on each.
void start_loaded(const ScoreOptions& options, const ScoredModel& model,
                  const DescribeScored& describe, const std::function<void(ScoredRun&)>& body);
/// Predicts all samples on all ranks of this process; rank 0 writes the rows.
void start_scoring(const ScoreOptions& options, const RowScoring& scoring,
                   const DescribeScored& describe);

}  // namespace examples
