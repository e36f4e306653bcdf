// Data parallelism: sums over replicas, divided by global counts; replicas may have unequal shares. On any device.
#pragma once

#include <dhp/parallel/data.hpp>
#include <dhp/parallel/pipeline.hpp>
#include <tests/support/device_ranks.hpp>
#include <tests/support/regression.hpp>

namespace tests {

template <class Dev>
class DataCases {
 public:
  template <class Options>
  static void global_mean() {
    for (const int replicas : {1, 2, 3, 4, 7}) {  // 5 micro-batches: of 7 replicas two get none
      CAPTURE(replicas);
      double sum = 0;
      for (const auto& found : run(replicas, Options{})) {
        CHECK(std::abs(found.gradient - expected_gradient) < 1e-12);
        sum += found.sum;
      }
      CHECK(sum == 1 + 8 + 27 + 64 + 125);
    }
  }

  static void loss_scale() {
    for (const auto& found : run(2, Bucketed{}, 1024))
      CHECK(std::abs(found.gradient - 1024 * expected_gradient) < 1e-9);
  }

 private:
  static_assert(Trainable<PipelineParallel<Dev>, Dev>);
  static_assert(dhp::detail::OfReplicas<PipelineParallel<Dev>, Dev>);
  static_assert(Trainable<DataParallel<Dev, PipelineParallel<Dev>>, Dev>);
  static_assert(!dhp::detail::OfReplicas<DataParallel<Dev, PipelineParallel<Dev>>, Dev>);
  static_assert(!Trainable<int, Dev>);

  static constexpr std::int64_t micro_batches = 5;

  // y = w x with w = 1 and target 0: the gradient of the mean of y^2 is 2 mean(x^2). Micro-batch k has k + 1 samples
  // of value k + 1: a mean of means would be wrong.
  static MicroBatch<Dev> batch_of(Dev& dev, std::int64_t k) {
    const Shape shape{k + 1, 1};
    const std::vector<double> x(static_cast<std::size_t>(k) + 1, static_cast<double>(k) + 1);
    return regression_batch(k, Tensor<Dev>::from_host(dev, shape, x),
                            Tensor<Dev>::zeros(dev, DType::f64, shape));
  }
  static constexpr double expected_gradient = 2.0 * (1 + 8 + 27 + 64 + 125) / (1 + 2 + 3 + 4 + 5);

  struct Found {
    double gradient = 0;
    double sum = 0;
  };

  template <class Options>
  static std::vector<Found> run(int replicas, Options options, double loss_scale = 1) {
    std::vector<Found> found(static_cast<std::size_t>(replicas));
    on_ranks_of<Dev>(replicas, [&](Dev& dev, Comm<Dev> world) {
      Mesh<Dev> mesh(std::move(world), {.data = replicas});
      ModelBuilder<Dev> build(Comm<Dev>{});
      Model<Dev> model;
      model.add("linear", one_weight(build, "linear"));
      model.loss = MeanSquaredError<Dev>();
      PipelineParallel<Dev> pipeline(dev, std::move(model), mesh, {}, batch_of(dev, 0),
                                     {.compute = DType::f64});
      DataParallel parallel(dev, pipeline, mesh.data(), options);
      std::vector<MicroBatch<Dev>> batches;
      const auto mine = part_of(micro_batches, replicas, mesh.data_index());
      for (auto k = mine.first; k < mine.last; ++k) batches.push_back(batch_of(dev, k));
      auto& mine_found = found[static_cast<std::size_t>(mesh.data_index())];
      for (int step = 0; step < 2; ++step) {
        parallel.store().zero_gradients(dev);
        mine_found.sum = 0;
        const auto state = make_step_state(dev, {.loss_scale = loss_scale});
        const auto losses = parallel.forward_backward(
            dev, {.batches = batches, .micro_batches = micro_batches, .state = state.view()});
        const auto values = widened(dev, losses);
        for (std::size_t at = 0; at < values.size(); at += loss_fields)
          mine_found.sum += values[at];
      }
      mine_found.gradient = widened(dev, parallel.store().parameters()[0]->gradient)[0];
    });
    return found;
  }
};

}  // namespace tests
