// ReducerChoice: a reducer chosen at run time, of all that dhp has.
#pragma once

#include <dhp/extra/delayed_reducer.hpp>
#include <dhp/extra/local_sgd.hpp>
#include <dhp/extra/one_bit.hpp>
#include <dhp/extra/power_sgd.hpp>
#include <dhp/extra/sixteen_bit.hpp>
#include <dhp/extra/top_k.hpp>
#include <dhp/train/training_run.hpp>

#include <variant>

namespace dhp {

/// What can reduce the gradients of an unsharded store.
using ReducerChoice =
    std::variant<Bucketed, Plain, SixteenBit, TopK, PowerSgd, OneBit, Delayed, LocalSgd>;

/// Offers every reducer and optimizer of dhp.
using AllTrainingOptions = TrainingOptionsOf<ReducerChoice, OptimizerChoice>;

}  // namespace dhp
