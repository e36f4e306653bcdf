// OptimizerChoice: any optimizer of dhp, chosen at run time.
#pragma once

#include <dhp/optim/adamw.hpp>
#include <dhp/optim/lamb.hpp>
#include <dhp/optim/lars.hpp>
#include <dhp/optim/sgd.hpp>

#include <memory>
#include <variant>

namespace dhp {

/// Each optimizer has a make_optimizer() for its options. To add your own, overload make_optimizer().
using OptimizerChoice = std::variant<SgdOptions, LarsOptions, AdamWOptions, LambOptions>;

template <class Dev, class... Options>
[[nodiscard]] std::unique_ptr<Optimizer<Dev>> make_optimizer(
    Dev& dev, ParameterStore<Dev>& store, const Norms<Dev>& norms,
    const std::variant<Options...>& choice) {
  return std::visit(
      [&](const auto& options) -> std::unique_ptr<Optimizer<Dev>> {
        return make_optimizer(dev, store, norms, options);
      },
      choice);
}

}  // namespace dhp
