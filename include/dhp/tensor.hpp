// tensor: views, tensors, the tape and the micro-batch.
#pragma once

#include <dhp/tensor/micro_batch.hpp>
#include <dhp/tensor/tape.hpp>
#include <dhp/tensor/tensor.hpp>
#include <dhp/tensor/view.hpp>
