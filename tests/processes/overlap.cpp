// overlap REDUCER TRACE STEPS: a rank of a data-parallel job whose layers sleep. Each layer's gradient is one bucket
// ("bucketed"), or all are summed after the backward pass ("plain"). Rank 0 writes the trace of all ranks.
#include <dhp/comm/gloo/connect.hpp>
#include <dhp/comm/observe/trace.hpp>
#include <dhp/cpu.hpp>
#include <dhp/nn/mean_squared_error.hpp>
#include <dhp/optim/sgd.hpp>
#include <dhp/parallel/data.hpp>
#include <dhp/parallel/pipeline.hpp>
#include <dhp/train/trainer.hpp>
#include <examples/report/trace_file.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

namespace {

using namespace dhp;

constexpr int layers = 10;
constexpr std::int64_t elements = 1 << 17;  // a layer's gradient has half a MiB
constexpr double forward_ms = 30, backward_ms = 90;

/// y = x, after a sleep.
class Sleeper {
 public:
  Sleeper(ModelBuilder<Cpu>& build, const std::string& name)
      : weight_(build.parameter({.name = name, .shape = Shape{elements}})) {}
  Tensor<Cpu> forward(Cpu&, Tensor<Cpu> x, Tape<Cpu>&) {
    sleep(forward_ms);
    return x;
  }
  Tensor<Cpu> backward(Cpu& dev, Tensor<Cpu> dy, Tape<Cpu>&) {
    sleep(backward_ms);
    weight_->accumulate(dev, [&](View<Cpu> gradient, double) { fill(dev, gradient, 1e-6); });
    return dy;
  }
  [[nodiscard]] Shape output_shape(const Shape& in, const MicroBatch<Cpu>&) const { return in; }
  [[nodiscard]] double flops(const Shape&, const MicroBatch<Cpu>&) const { return 1; }
  void parameters(ParameterList<Cpu>& out) const { out.push_back(weight_); }

 private:
  static void sleep(double ms) {
    std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(ms));
  }
  Parameter<Cpu> weight_;
};

MicroBatch<Cpu> batch(Cpu& dev, std::int64_t index) {
  MicroBatch<Cpu> result;
  result.index = index;
  result.first_sample = index;
  result.samples = 1;
  result.input = Tensor<Cpu>::zeros(dev, DType::f32, {1, 1});
  result.side.emplace_back("targets", Tensor<Cpu>::zeros(dev, DType::f32, {1, 1}));
  result.counts = {{"elements", 1}};
  return result;
}

void train(const std::string& reducer, const std::string& path, int steps, Comm<Cpu> plain_world) {
  Cpu dev({.trace = std::make_shared<Trace>()});
  auto world = observe<Cpu>(plain_world, std::make_shared<CallTracing<Cpu>>(dev, plain_world));
  Mesh<Cpu> mesh(world, {.data = world.size()});
  ModelBuilder<Cpu> build(Comm<Cpu>{});
  Model<Cpu> model;
  for (int layer = 0; layer < layers; ++layer) {
    const auto name = concat("layer ", layer);
    model.add(name, Sleeper(build, name));
  }
  model.loss = MeanSquaredError<Cpu>();
  PipelineParallel<Cpu> stage(dev, std::move(model), mesh, {}, batch(dev, 0));
  std::variant<Plain, Bucketed> choice;
  if (reducer == "bucketed") choice = Bucketed{.bytes = elements * sizeof(float)};
  else check(reducer == "plain", "there is no reducer ", reducer);
  DataParallel replicas(dev, stage, mesh.data(), choice);
  Norms<Cpu> norms(mesh.tensor(), mesh.pipeline(), stage.parameters_in_model());
  Sgd<Cpu> optimizer(dev, stage.store(), {});
  Trainer trainer(dev, replicas, mesh, optimizer, norms, {.learning_rate = {.peak = 0.01}});
  const auto offset = examples::clock_offset(dev, world, [&] { return dev.trace()->now_s(); });
  StepBatches<Cpu> mine{.batches = {}, .micro_batches = world.size()};
  mine.batches.push_back(batch(dev, world.rank()));
  for (int step = 0; step < steps; ++step) (void)trainer.step(mine);
  examples::write_trace(dev, plain_world, *dev.trace(), path, "", offset.ahead_s);
}

}  // namespace

int main(int count, char** arguments) {
  try {
    check(count == 4, "overlap REDUCER TRACE STEPS");
    const auto me = ProcessRank::from_environment();
    check(me.has_value(), "no launcher has started this");
    run_process_rank(*me, connect_gloo,
                     [&](Comm<Cpu> world) {
                       train(arguments[1], arguments[2], std::atoi(arguments[3]), std::move(world));
                     },
                     {.timeout_s = 60});
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "error: %s\n", error.sentence().c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
  }
  return 1;
}
