// A workload under everything that a training run wraps around it, in a group of one: PipelineParallel,
// DataParallel and Trainer, as the trainers in examples/ put them together.
#pragma once

#include <bench/workloads.hpp>
#include <dhp/parallel/data.hpp>
#include <dhp/parallel/pipeline.hpp>
#include <dhp/train/trainer.hpp>

namespace bench {

class WrappedRun {
 public:
  WrappedRun(Dev& dev, const Workload& workload)
      : batch_(micro_batch(dev, workload)),
        mesh_(dhp::Comm<Dev>(), dhp::MeshShape{}),
        pipeline_(dev, model(build_, workload), mesh_, dhp::PipelineOptions{}, batch_),
        replicas_(dev, pipeline_, mesh_.data()),
        optimizer_(optimizer(dev, pipeline_.store(), workload)),
        trainer_(dev, replicas_, mesh_, *optimizer_,
                 {mesh_.tensor(), mesh_.pipeline(), pipeline_.parameters_in_model()},
                 {.learning_rate = {.peak = learning_rate}, .clip = clip}) {}

  /// One training step; the loss.
  double step() { return trainer_.step({&batch_, 1}).loss; }

 private:
  dhp::Build<Dev> build_;
  dhp::MicroBatch<Dev> batch_;
  dhp::Mesh<Dev> mesh_;
  dhp::PipelineParallel<Dev> pipeline_;
  dhp::DataParallel<Dev, dhp::PipelineParallel<Dev>> replicas_;
  std::unique_ptr<dhp::Optimizer<Dev>> optimizer_;
  dhp::Trainer<Dev, dhp::DataParallel<Dev, dhp::PipelineParallel<Dev>>> trainer_;
};

}  // namespace bench
