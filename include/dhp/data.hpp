// data: datasets, batches and the loader. Readers that need another library have headers of their own.
#pragma once

#include <dhp/data/augment.hpp>
#include <dhp/data/collate.hpp>
#include <dhp/data/dataset.hpp>
#include <dhp/data/decoder.hpp>
#include <dhp/data/epoch_order.hpp>
#include <dhp/data/find_shards.hpp>
#include <dhp/data/function_samples.hpp>
#include <dhp/data/host_array.hpp>
#include <dhp/data/idx.hpp>
#include <dhp/data/image.hpp>
#include <dhp/data/image_batcher.hpp>
#include <dhp/data/image_folder.hpp>
#include <dhp/data/loader.hpp>
#include <dhp/data/npy.hpp>
#include <dhp/data/permutation.hpp>
#include <dhp/data/shard_images.hpp>
#include <dhp/data/step_source.hpp>
