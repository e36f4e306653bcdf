// dhp: everything that needs only the standard library and no particular device. dhp/cpu.hpp or dhp/cuda.cuh adds the
// kernels. File readers that need other libraries have headers of their own.
#pragma once

#include <dhp/core/config.hpp>

#include <dhp/comm.hpp>
#include <dhp/core.hpp>
#include <dhp/data/dataset.hpp>
#include <dhp/data/function_samples.hpp>
#include <dhp/data/loader.hpp>
#include <dhp/device.hpp>
#include <dhp/nn.hpp>
#include <dhp/optim.hpp>
#include <dhp/parallel.hpp>
#include <dhp/tensor.hpp>
#include <dhp/train.hpp>
