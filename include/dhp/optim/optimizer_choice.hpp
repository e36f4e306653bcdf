// OptimizerChoice: an optimizer chosen at run time.
#pragma once

#include <dhp/optim/adamw.hpp>
#include <dhp/optim/lamb.hpp>
#include <dhp/optim/lars.hpp>
#include <dhp/optim/sgd.hpp>

#include <memory>
#include <variant>

namespace dhp {

using OptimizerChoice = std::variant<SgdOptions, LarsOptions, AdamWOptions, LambOptions>;

template <class Dev>
[[nodiscard]] std::unique_ptr<Optimizer<Dev>> make_optimizer(Dev& dev, ParameterStore<Dev>& store,
                                                             const Norms<Dev>& norms,
                                                             const OptimizerChoice& choice) {
  if (const auto* sgd = std::get_if<SgdOptions>(&choice))
    return std::make_unique<Sgd<Dev>>(dev, store, *sgd);
  if (const auto* lars = std::get_if<LarsOptions>(&choice))
    return std::make_unique<Lars<Dev>>(dev, store, norms, *lars);
  if (const auto* lamb = std::get_if<LambOptions>(&choice))
    return std::make_unique<Lamb<Dev>>(dev, store, norms, *lamb);
  return std::make_unique<AdamW<Dev>>(dev, store, std::get<AdamWOptions>(choice));
}

}  // namespace dhp
