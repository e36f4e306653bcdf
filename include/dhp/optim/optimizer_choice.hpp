// OptimizerChoice: an optimizer chosen at run time.
#pragma once

#include <dhp/optim/adamw.hpp>
#include <dhp/optim/lamb.hpp>
#include <dhp/optim/lars.hpp>
#include <dhp/optim/sgd.hpp>

#include <memory>
#include <type_traits>
#include <variant>

namespace dhp {

using OptimizerChoice = std::variant<SgdOptions, LarsOptions, AdamWOptions, LambOptions>;

template <class Dev, class... Options>
[[nodiscard]] std::unique_ptr<Optimizer<Dev>> make_optimizer(
    Dev& dev, ParameterStore<Dev>& store, const Norms<Dev>& norms,
    const std::variant<Options...>& choice) {
  return std::visit(
      [&]<class O>(const O& options) -> std::unique_ptr<Optimizer<Dev>> {
        if constexpr (std::is_same_v<O, SgdOptions>)
          return std::make_unique<Sgd<Dev>>(dev, store, options);
        else if constexpr (std::is_same_v<O, LarsOptions>)
          return std::make_unique<Lars<Dev>>(dev, store, norms, options);
        else if constexpr (std::is_same_v<O, LambOptions>)
          return std::make_unique<Lamb<Dev>>(dev, store, norms, options);
        else return std::make_unique<AdamW<Dev>>(dev, store, options);
      },
      choice);
}

}  // namespace dhp
