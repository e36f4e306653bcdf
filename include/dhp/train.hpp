// train: the training run. What it saves needs nlohmann/json: dhp/checkpoint.hpp.
#pragma once

#include <dhp/train/predictions.hpp>
#include <dhp/train/stop_signal.hpp>
#include <dhp/train/trainer.hpp>
#include <dhp/train/training_run.hpp>
