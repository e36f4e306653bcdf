// nn: parameters and their store, layers, losses.
#pragma once

#include <dhp/nn/activation.hpp>
#include <dhp/nn/batch_norm.hpp>
#include <dhp/nn/check_gradients.hpp>
#include <dhp/nn/conv2d.hpp>
#include <dhp/nn/cross_entropy.hpp>
#include <dhp/nn/dropout.hpp>
#include <dhp/nn/embedding.hpp>
#include <dhp/nn/feed_forward.hpp>
#include <dhp/nn/init.hpp>
#include <dhp/nn/layer.hpp>
#include <dhp/nn/layer_norm.hpp>
#include <dhp/nn/linear.hpp>
#include <dhp/nn/loss.hpp>
#include <dhp/nn/low_rank.hpp>
#include <dhp/nn/mean_squared_error.hpp>
#include <dhp/nn/model_builder.hpp>
#include <dhp/nn/parameter_store.hpp>
#include <dhp/nn/pool.hpp>
#include <dhp/nn/recompute.hpp>
#include <dhp/nn/residual.hpp>
#include <dhp/nn/residual_batch_norm.hpp>
#include <dhp/nn/residual_layer_norm.hpp>
#include <dhp/nn/sample_embeddings.hpp>
#include <dhp/nn/self_attention.hpp>
#include <dhp/nn/sequential.hpp>
