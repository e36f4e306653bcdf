// The playground's estimate of what a rank of each stage sends and holds, compared with a step on Meta. ZeRO's shares
// are whole pages; the few bytes of losses and norms are extra.
#include <dhp/comm/meta_comm.hpp>
#include <dhp/nn/feed_forward.hpp>
#include <dhp/nn/mean_squared_error.hpp>
#include <dhp/ops/meta.hpp>
#include <dhp/train/training_run.hpp>
#include <tests/support/test.hpp>

#include <docs/site/playground/step_estimate.hpp>

namespace {

constexpr std::int64_t columns = 256, rows = 16;

MicroBatch<Meta> batch(Meta& dev, std::int64_t k) {
  MicroBatch<Meta> result;
  result.index = k;
  result.first_sample = k * rows;
  result.samples = rows;
  result.input = Tensor<Meta>::zeros(dev, DType::f32, {rows, columns});
  result.side.emplace_back("targets", result.input.share());
  result.counts = {{"elements", rows * columns}};
  return result;
}

/// Eight layers with one all-reduce in each direction, for four layers of the estimate, which have two.
Model<Meta> network(ModelBuilder<Meta>& build) {
  build.place({{"*.in.*", Placement::columns},
               {"*.out.weight", Placement::rows},
               {"*", Placement::replicated}});
  Model<Meta> model;
  for (const auto* name : {"0", "1", "2", "3", "4", "5", "6", "7"})
    model.add(name, FeedForward<Meta>(build, concat(name, ".in"), concat(name, ".out"),
                                      {.columns = columns, .inner = 4 * columns}));
  model.loss = MeanSquaredError<Meta>();
  return model;
}

/// Checks that every count is 1 to `most` times the estimate, or less if the estimate is an upper bound.
void compare(playground::Question question, double most) {
  question.micro_batches = 8;
  question.layers = 4;
  question.parameters = 2.0 * (8 * columns * columns + 5 * columns);
  question.boundary = (question.half ? 2 : 4) * rows * columns;
  const MeshShape layout{question.data, question.tensor, question.pipeline};
  const auto estimated = playground::estimate(question);
  TrainingOptions options{.layout = layout,
                          .pipeline = {.schedule = question.schedule, .chunks = question.chunks},
                          .optimizer = AdamWOptions{}};
  options.store = {.compute = question.half ? DType::bf16 : DType::f32,
                   .sharding = {static_cast<ZeroStage>(question.zero), 1 << 20}};
  for (int at = 0; at < layout.pipeline; ++at) {
    CAPTURE(to_text(layout));
    CAPTURE(question.zero);
    CAPTURE(at);
    Meta dev;
    const auto world = MetaComm<Meta>::world(layout, at * layout.data * layout.tensor);
    TrainingRun<Meta> run(dev, Comm<Meta>::of(world), options, network, batch(dev, 0));
    StepBatches<Meta> mine;
    mine.micro_batches = question.micro_batches;
    mine.same_shapes = true;
    for (std::int64_t k = 0; k < mine.micro_batches / layout.data; ++k)
      mine.batches.push_back(batch(dev, k));
    constexpr int steps = 8;  // several, because ZeRO's last gathers may run in the next step
    (void)run.trainer().start(mine);
    const double before = dev.count().sent_bytes;
    for (int step = 0; step < steps; ++step) (void)run.trainer().start(mine);
    const auto& stage = estimated.stages[detail::as_size(at)];
    const auto& sent = stage.sent;
    const auto agrees = [&](double is, double expected, bool bound = false) {
      CHECK(is <= most * expected);
      if (!bound) CHECK(is >= expected);
    };
    agrees((dev.count().sent_bytes - before) / steps, sent.data + sent.tensor + sent.pipeline,
           question.zero == 3);
    agrees(static_cast<double>(run.store().weight_bytes()), stage.memory.weights);
    agrees(static_cast<double>(run.store().gradient_bytes()), stage.memory.gradients);
    double optimizer = 0;
    for (const auto& state : run.optimizer().state())
      optimizer += static_cast<double>(state.buffer->size_bytes());
    agrees(optimizer, stage.memory.optimizer);
  }
}

}  // namespace

TEST_CASE("playground: a rank sends and holds what the estimate says") {
  for (const bool half : {false, true}) {
    CAPTURE(half);
    compare({.data = 4, .tensor = 1, .pipeline = 1, .half = half}, 1.02);
    compare({.data = 1, .tensor = 4, .pipeline = 1, .half = half}, 1.02);
    compare({.data = 1, .tensor = 1, .pipeline = 4, .half = half}, 1.02);
    compare({.pipeline = 2, .half = half}, 1.02);
    compare({.pipeline = 2, .schedule = Interleaved{}, .chunks = 2, .zero = 1, .half = half}, 1.2);
    compare({.pipeline = 2, .schedule = ZeroBubble{}, .zero = 2, .half = half}, 1.2);
    compare({.pipeline = 2, .schedule = GPipe{}, .zero = 3, .half = half}, 1.2);
  }
}
