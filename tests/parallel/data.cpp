// Data parallelism: sums over replicas, divided by global counts; replicas may have unequal shares.
#include <dhp/comm/launch.hpp>
#include <dhp/cpu.hpp>
#include <dhp/nn/linear.hpp>
#include <dhp/nn/mean_squared_error.hpp>
#include <dhp/parallel/data.hpp>
#include <dhp/parallel/pipeline.hpp>
#include <tests/support/tensors.hpp>

#include <doctest/doctest.h>

#include <map>

using namespace dhp;
using namespace tests;

namespace {

static_assert(Trainable<PipelineParallel<Cpu>, Cpu>);
static_assert(Trainable<DataParallel<Cpu, PipelineParallel<Cpu>>, Cpu>);
static_assert(Trainable<DataParallel<Cpu, PipelineParallel<Cpu>, Plain>, Cpu>);
static_assert(!Trainable<int, Cpu>);

constexpr std::int64_t micro_batches = 5;

// y = w x with w = 1 and target 0: the gradient of the mean of y^2 is 2 mean(x^2). Micro-batch k
// has k + 1 samples of value k + 1, so that means of means are wrong.
MicroBatch<Cpu> batch_of(Cpu& dev, std::int64_t k) {
  MicroBatch<Cpu> batch;
  batch.index = k;
  batch.samples = k + 1;
  batch.input = Tensor<Cpu>::from_host(
      dev, {k + 1, 1},
      std::vector<double>(static_cast<std::size_t>(k) + 1, static_cast<double>(k) + 1));
  batch.side.emplace_back("targets", Tensor<Cpu>::zeros(dev, DType::f64, {k + 1, 1}));
  batch.counts = {{"elements", k + 1}};
  return batch;
}
constexpr double expected_gradient = 2.0 * (1 + 8 + 27 + 64 + 125) / (1 + 2 + 3 + 4 + 5);

struct Found {
  double gradient = 0;
  double sum = 0;
  bool ready_once = true;
};

template <class Options>
std::vector<Found> run(int replicas, Options options, double loss_scale = 1) {
  std::vector<Found> found(static_cast<std::size_t>(replicas));
  run_ranks(
      replicas,
      [&](Comm<Cpu> world) {
        Cpu dev;
        Mesh<Cpu> mesh(std::move(world), {.data = replicas});
        Build<Cpu> build;
        build.compute = DType::f64;
        Model<Cpu> model;
        model.add("linear",
                  Linear<Cpu>(build, "linear",
                              {.in = 1, .out = 1, .bias = false, .weight_init = constant(1)}));
        model.loss = MeanSquaredError<Cpu>();
        PipelineParallel<Cpu> pipeline(dev, std::move(model), mesh,
                                       {.store = {.compute = DType::f64}}, batch_of(dev, 0));
        DataParallel parallel(dev, pipeline, mesh.data(), options);
        std::vector<MicroBatch<Cpu>> batches;
        const auto mine = part_of(micro_batches, replicas, mesh.data_index());
        for (auto k = mine.first; k < mine.last; ++k) batches.push_back(batch_of(dev, k));
        auto& mine_found = found[static_cast<std::size_t>(mesh.data_index())];
        for (int step = 0; step < 2; ++step) {
          std::map<std::int64_t, int> times;
          parallel.store().zero_gradients(dev);
          mine_found.sum = 0;
          const auto state = make_step_state(dev, {.loss_scale = loss_scale});
          // Known beforehand, or found out together.
          const auto total = step == 0 ? std::int64_t{-1} : micro_batches;
          const auto losses = parallel.forward_backward(
              dev, {.batches = batches, .micro_batches = total, .state = state.view()},
              [&](Range range) { ++times[range.first]; });
          const auto values = widened(losses);
          for (std::size_t at = 0; at < values.size(); at += loss_fields)
            mine_found.sum += values[at];
          mine_found.ready_once = mine_found.ready_once && times.size() == 1 && times[0] == 1;
        }
        mine_found.gradient = parallel.store().parameters()[0]->gradient.template data<double>()[0];
      },
      {.timeout_s = 60});
  return found;
}

}  // namespace

TEST_CASE_TEMPLATE("every replica has the gradient of the global mean", Options, Plain, Bucketed) {
  for (const int replicas : {1, 2, 3, 4, 7}) {  // of 7, two get no micro-batch
    CAPTURE(replicas);
    double sum = 0;
    for (const auto& found : run(replicas, Options{})) {
      CHECK(std::abs(found.gradient - expected_gradient) < 1e-12);
      CHECK(found.ready_once);
      sum += found.sum;
    }
    CHECK(sum == 1 + 8 + 27 + 64 + 125);
  }
}

TEST_CASE("gradients come out multiplied by the loss scale, losses do not") {
  for (const auto& found : run(2, Bucketed{}, 1024))
    CHECK(std::abs(found.gradient - 1024 * expected_gradient) < 1e-9);
}
