// AllTrainingOptions: options with any reducer and optimizer of dhp, chosen at run time.
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

/// The options of all reducers for unsharded stores.
using ReducerChoice =
    std::variant<Bucketed, Plain, SixteenBit, TopK, PowerSgd, OneBit, Delayed, LocalSgd>;

/// Training options that offer every reducer and optimizer of dhp.
using AllTrainingOptions = TrainingOptionsOf<ReducerChoice, OptimizerChoice>;

}  // namespace dhp
