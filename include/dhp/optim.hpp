// optim: optimizers and learning rate schedules.
#pragma once

#include <dhp/optim/adamw.hpp>
#include <dhp/optim/lamb.hpp>
#include <dhp/optim/lars.hpp>
#include <dhp/optim/learning_rate.hpp>
#include <dhp/optim/optimizer.hpp>
#include <dhp/optim/optimizer_choice.hpp>
#include <dhp/optim/sgd.hpp>
