// measure_held_out: evaluates the model on the samples that are held out of training.
#pragma once

#include <dhp/comm/gather.hpp>

#include "step_data.hpp"

#include <optional>

namespace examples {

/// Returns the measures on all ranks; nullopt if the run was asked to stop meanwhile. Collective.
[[nodiscard]] inline std::optional<Measures> measure_held_out(Dev& dev, const TrainingSetup& setup,
                                                              dhp::TrainingRun<Dev>& run) {
  dhp::Loader pass(dev, setup.held_out, dhp::evaluation_pass(loader_options_of(setup)));
  if (!setup.predicted_measures) {
    const auto loss = run.evaluate(pass);
    if (!loss) return std::nullopt;
    return setup.measures(loss->terms);
  }
  const auto predictions = run.predict(pass);
  if (!predictions) return std::nullopt;
  // Only rank 0 has the predictions; all ranks get its measures.
  return dhp::detail::gather_values(dev, run.mesh().world(),
                                    setup.predicted_measures(*predictions))[0];
}

}  // namespace examples
