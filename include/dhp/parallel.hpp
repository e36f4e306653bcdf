// parallel: data, tensor and pipeline parallelism.
#pragma once

#include <dhp/parallel/data.hpp>
#include <dhp/parallel/pipeline.hpp>
#include <dhp/parallel/reducer.hpp>
#include <dhp/parallel/schedule.hpp>
#include <dhp/parallel/schedule_check.hpp>
#include <dhp/parallel/schedule_time.hpp>
#include <dhp/parallel/trainable.hpp>
