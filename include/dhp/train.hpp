// train: the training run. Checkpoints also need dhp/checkpoint.hpp and nlohmann/json.
#pragma once

#include <dhp/train/predictions.hpp>
#include <dhp/train/stop_signal.hpp>
#include <dhp/train/trainer.hpp>
#include <dhp/train/training_run.hpp>
