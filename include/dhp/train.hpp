// train: the training run. Checkpoints need nlohmann/json and are included by name.
#pragma once

#include <dhp/train/predictions.hpp>
#include <dhp/train/trainer.hpp>
#include <dhp/train/training_run.hpp>
