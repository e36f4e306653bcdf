// Checkpoints, from which a training run can be resumed, and export of weights. Needs nlohmann/json.
#pragma once

#include <dhp/core/config.hpp>

#include <dhp/train/export.hpp>
#include <dhp/train/run_files.hpp>
