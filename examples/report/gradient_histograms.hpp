// How the gradients of a model are spread, for TensorBoard.
#pragma once

#include <dhp/comm/gather.hpp>
#include <dhp/train/training_run.hpp>

#include "histogram.hpp"

#include <map>
#include <string>

namespace examples {

/// By parameter, of the last step, before clipping. The first rank that holds an element counts it, so each counts once.
/// scale: that the gradients have been multiplied by. Collective.
template <class Dev>
[[nodiscard]] std::map<std::string, Histogram> gradient_histograms(Dev& dev,
                                                                   dhp::TrainingRun<Dev>& run,
                                                                   double scale) {
  auto& store = run.store();
  auto& mesh = run.mesh();
  std::map<std::string, Histogram> mine;  // a parameter may be held in pieces
  for (const auto& held : store.held()) {
    const auto& parameter = *held.parameter;
    const bool counts = !held.copy && parameter.owned && (held.sharded || mesh.data_index() == 0) &&
                        (parameter.spec.is_split() || mesh.tensor_index() == 0);
    if (!counts) continue;
    const auto part = store.gradients(held.range);
    dhp::Tensor<Dev> wide(dev, dhp::DType::f64, part.shape());
    cast(dev, part, wide.mut());
    auto& histogram = mine[parameter.spec.name];
    for (const double value : wide.template to_host<double>(dev)) histogram.add(value / scale);
  }
  auto own = nlohmann::json::object();
  for (const auto& [name, histogram] : mine) own[name] = histogram.to_json();
  std::map<std::string, Histogram> all;
  for (const auto& text : dhp::gather_texts(dev, mesh.world(), own.dump())) {
    const auto of_rank = nlohmann::json::parse(text);
    for (const auto& [name, json] : of_rank.items()) all[name].add(Histogram::of_json(json));
  }
  return all;
}

}  // namespace examples
