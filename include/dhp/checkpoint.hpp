// Checkpoints: what a training run saves and goes on from, and export of weights. Needs nlohmann/json.
#pragma once

#include <dhp/core/config.hpp>

#include <dhp/train/export.hpp>
#include <dhp/train/run_files.hpp>
