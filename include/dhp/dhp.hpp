// dhp: everything that needs the standard library only and no particular device. Kernels come with
// dhp/cpu.hpp or dhp/cuda.cuh; readers of files with other libraries are included by name.
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
