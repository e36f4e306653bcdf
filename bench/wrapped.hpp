// A workload under PipelineParallel, DataParallel and Trainer in a group of one, as examples/ use them.
#pragma once

#include <bench/workloads.hpp>
#include <dhp/parallel/data.hpp>
#include <dhp/parallel/pipeline.hpp>
#include <dhp/train/trainer.hpp>

#include <utility>

namespace bench {

struct Wrapping {
  dhp::DType compute = dhp::DType::f32;
  dhp::Comm<Dev> replicas{};  ///< a group of one rank
};

class WrappedRun {
 public:
  WrappedRun(Dev& dev, const Workload& workload, const Wrapping& wrapping = {})
      : mesh_(dhp::Comm<Dev>(), dhp::MeshShape{}),
        build_(mesh_),
        mine_{.batches = {}, .micro_batches = 1},
        pipeline_(dev, model(build_, workload), mesh_, {},
                  micro_batch(dev, workload, wrapping.compute), {.compute = wrapping.compute}),
        replicas_(dev, pipeline_, wrapping.replicas),
        optimizer_(optimizer(dev, pipeline_.store(), workload)),
        trainer_(dev, replicas_, mesh_, *optimizer_,
                 {mesh_.tensor(), mesh_.pipeline(), pipeline_.parameters_in_model()},
                 {.learning_rate = {.peak = learning_rate}, .clip = clip}) {
    mine_.batches.push_back(micro_batch(dev, workload, wrapping.compute));
  }

  /// Does one training step; returns the loss.
  double step() { return trainer_.step(mine_).loss; }
  /// Does steps as the trainers do: each one starts before the previous loss is read. Returns the last loss.
  double steps(int count) {
    auto under_way = trainer_.start(mine_);
    for (int more = 1; more < count; ++more) {
      auto next = trainer_.start(mine_);
      (void)trainer_.finish(under_way);
      under_way = std::move(next);
    }
    return trainer_.finish(under_way).loss;
  }

 private:
  dhp::Mesh<Dev> mesh_;
  dhp::ModelBuilder<Dev> build_;
  dhp::StepBatches<Dev> mine_;
  dhp::PipelineParallel<Dev> pipeline_;
  dhp::DataParallel<Dev, dhp::PipelineParallel<Dev>> replicas_;
  std::unique_ptr<dhp::Optimizer<Dev>> optimizer_;
  dhp::Trainer<Dev, dhp::DataParallel<Dev, dhp::PipelineParallel<Dev>>> trainer_;
};

}  // namespace bench
