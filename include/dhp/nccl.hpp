// Ranks on GPUs over NCCL: run_ranks<Cuda>, and a host program's communicator. Needs CUDA and NCCL; link dhp::nccl.
// Ranks that are processes need <dhp/comm/nccl/connect.hpp>, and OpenSSL, too.
#pragma once

#include <dhp/core/config.hpp>

#include <dhp/comm/nccl/launch.hpp>
