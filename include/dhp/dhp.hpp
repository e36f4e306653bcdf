// dhp: everything that needs the standard library only and no particular device. Kernels come with
// dhp/cpu.hpp or dhp/cuda.cuh; readers of files with other libraries are included by name.
#pragma once

#include <dhp/comm/launch.hpp>
#include <dhp/comm/mesh.hpp>
#include <dhp/core/config.hpp>
#include <dhp/data/loader.hpp>
#include <dhp/nn/activation.hpp>
#include <dhp/nn/batch_norm.hpp>
#include <dhp/nn/conv2d.hpp>
#include <dhp/nn/cross_entropy.hpp>
#include <dhp/nn/dropout.hpp>
#include <dhp/nn/embedding.hpp>
#include <dhp/nn/feed_forward.hpp>
#include <dhp/nn/layer_norm.hpp>
#include <dhp/nn/linear.hpp>
#include <dhp/nn/mean_squared_error.hpp>
#include <dhp/nn/pool.hpp>
#include <dhp/nn/recompute.hpp>
#include <dhp/nn/residual_batch_norm.hpp>
#include <dhp/nn/residual_layer_norm.hpp>
#include <dhp/nn/self_attention.hpp>
#include <dhp/nn/sequential.hpp>
#include <dhp/parallel/channels.hpp>
#include <dhp/parallel/schedule_draw.hpp>
#include <dhp/parallel/tensor.hpp>
#include <dhp/train/training_run.hpp>
