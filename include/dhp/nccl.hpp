// Ranks on GPUs over NCCL: run_ranks<Cuda>, and the use of a host program's communicator. Needs CUDA and NCCL; link
// dhp::nccl. Ranks that are processes also need <dhp/comm/nccl/connect.hpp> and OpenSSL.
#pragma once

#include <dhp/core/config.hpp>

#include <dhp/comm/nccl/launch.hpp>
