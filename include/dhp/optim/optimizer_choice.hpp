// The optimizers of dhp, of which a program chooses one when it runs.
#pragma once

#include <dhp/optim/adamw.hpp>
#include <dhp/optim/lamb.hpp>
#include <dhp/optim/lars.hpp>
#include <dhp/optim/sgd.hpp>

#include <variant>

namespace dhp {

using OptimizerChoice = std::variant<SgdOptions, LarsOptions, AdamWOptions, LambOptions>;

}  // namespace dhp
