// The trained part of a model: all of it, all except frozen parts, or low-rank adapters of some layers and the head.
#pragma once

#include <dhp/core/error.hpp>
#include <dhp/nn/low_rank_options.hpp>

#include <memory>
#include <set>
#include <string>
#include <vector>

namespace examples {

struct FineTuning {
  std::vector<std::string> freeze{};  ///< patterns of parameter names, with * and ?
  dhp::LowRankOptions adapters{.rank = 16, .alpha = 32};
  std::string adapter{};  ///< folder of an adapter to start from, in PEFT's format; empty: none
  std::string export_adapter{};  ///< folder for the trained adapter alone; empty: none

  /// Returns whether some parameters are not trained.
  [[nodiscard]] bool freezes() const { return !freeze.empty() || !adapters.layers.empty(); }
  /// Returns whether a parameter is trained. head: prefix of the last layers' names. Adds patterns that match to found.
  [[nodiscard]] bool trains(const std::string& name, const std::string& head,
                            std::set<std::string>& found) const;
};

/// Describes a model and limits its training to this part. Throws if a pattern or an adapter matches nothing.
[[nodiscard]] auto describe_tuned(auto& build, const FineTuning& tuning, const std::string& head,
                                  const auto& describe) {
  if (!tuning.freezes()) return describe(build);
  const auto found = std::make_shared<std::set<std::string>>();
  const auto any = std::make_shared<std::string>();  // name of one parameter, for the error
  build.adapt(tuning.adapters);
  build.train_only([=](const std::string& name) {
    if (any->empty()) *any = name;
    return tuning.trains(name, head, *found);
  });
  auto model = describe(build);
  for (const auto& pattern : tuning.freeze)
    dhp::check(found->contains(pattern), "--freeze ", pattern,
               ": no parameter of the model has such a name; one is called ", *any);
  return model;
}

/// Reads adapter_config.json in PEFT's format. Throws for another kind of adapter.
[[nodiscard]] dhp::LowRankOptions read_adapter_config(const std::string& folder);
/// Returns the adapters in the folder `adapter`; if it is empty, those of the model in `folder`, or none.
[[nodiscard]] dhp::LowRankOptions adapters_of(const std::string& folder,
                                              const std::string& adapter = {});
/// Returns the text of adapter_config.json. head: a part that is trained beside the adapters; empty: none.
[[nodiscard]] std::string adapter_config(const dhp::LowRankOptions& adapters,
                                         const std::string& head);

}  // namespace examples
