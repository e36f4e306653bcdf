// dhp: everything that needs only the standard library and no particular device. dhp/cpu.hpp or dhp/cuda.cuh adds the
// kernels. Include readers of files that need other libraries by name.
#pragma once

#include <dhp/core/config.hpp>

#include <dhp/comm.hpp>
#include <dhp/core.hpp>
#include <dhp/data/function_samples.hpp>
#include <dhp/data/loader.hpp>
#include <dhp/device.hpp>
#include <dhp/nn.hpp>
#include <dhp/optim.hpp>
#include <dhp/parallel.hpp>
#include <dhp/tensor.hpp>
#include <dhp/train.hpp>
