// train: the training run. Include dhp/checkpoint.hpp, which needs nlohmann/json, for checkpoints.
#pragma once

#include <dhp/train/predictions.hpp>
#include <dhp/train/stop_signal.hpp>
#include <dhp/train/trainer.hpp>
#include <dhp/train/training_run.hpp>
