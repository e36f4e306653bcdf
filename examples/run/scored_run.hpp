// Runs a model's predictions in any layout of ranks, for score_bert, score_gpt and score_resnet50.
#pragma once

#include <dhp/data/loader.hpp>
#include <dhp/default_device.hpp>

#include "../data/scoring.hpp"

#include <functional>
#include <string>

namespace examples {

/// Predicts all samples on all ranks of this process, on the device of the build; rank 0 writes the rows.
void start_scoring(const ScoreOptions& options, const Scoring& scoring,
                   const dhp::TrainingRun<dhp::DefaultDevice>::Describe& describe);

/// A model to load, and samples to score with it.
struct LoadedModel {
  dhp::TrainingRun<dhp::DefaultDevice>::Describe describe;
  const dhp::LowRankOptions& adapters;
  const AnyBatcher& samples;
  const std::string& description;
};
/// A rank with its part of the model.
struct ScoredRun {
  dhp::TrainingRun<dhp::DefaultDevice>& run;
  dhp::Loader<dhp::DefaultDevice, AnyBatcher>& loader;  ///< loads the samples
  std::function<void(const std::string&)> say;          ///< prints on rank 0
};
/// Runs body on all ranks of this process.
void start_loaded(const ScoreOptions& options, const LoadedModel& model,
                  const std::function<void(ScoredRun&)>& body);

}  // namespace examples
