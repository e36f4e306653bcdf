// Runs one step of a rank without the others, to load its kernels and make its plans; its numbers mean nothing. With
// CUDA_MODULE_LOADING=LAZY, a kernel that is loaded while a collective waits for a GPU can block both.
#pragma once

#include <dhp/comm/meta_comm.hpp>
#include <dhp/train/training_run.hpp>

#include <functional>
#include <type_traits>
#include <utility>

namespace examples {

/// Warms up for a run with these arguments, before the run is made. example: a micro-batch with the shapes of all
/// others. prepare: adapts the run before its first step.
template <class Dev, class Reducer, class Optimizer>
void warm_up_alone(
    Dev& dev, dhp::TrainingOptionsOf<Reducer, Optimizer> options, int rank,
    const typename dhp::TrainingRun<Dev>::Describe& describe, dhp::MicroBatch<Dev> example,
    const std::type_identity_t<
        std::function<void(dhp::TrainingRun<Dev>&, const dhp::MicroBatch<Dev>&)>>& prepare = {}) {
  options.pipeline.measure_costs = false;
  options.trainer.record = false;
  dhp::TrainingRun<Dev> alone(dev,
                              dhp::Comm<Dev>::of(dhp::MetaComm<Dev>::world(options.layout, rank)),
                              options, describe, example);
  if (prepare) prepare(alone, example);
  dhp::StepBatches<Dev> mine;
  mine.micro_batches = options.layout.data;
  mine.samples = mine.micro_batches * example.samples;
  mine.same_shapes = true;
  example.index = alone.mesh().data().rank();
  mine.batches.push_back(std::move(example));
  (void)alone.trainer().start(mine);
  alone.mesh().world().synchronize(dev);
}

}  // namespace examples
