// A whole training program: data, model, layout, resume, steps, save. "waves 4" trains on four threads, "mpirun -n 4
// waves 4" on four processes. Killed and started again, it continues where it stopped, on any number of ranks.
#include <dhp/checkpoint.hpp>
#include <dhp/cpu.hpp>
#include <dhp/gloo.hpp>

#include <cstdio>
using namespace dhp;

Sample wave(std::int64_t i) { return {.input = {.001F * i}, .target = {std::sin(.003F * i)}}; }
Model<Cpu> network(ModelBuilder<Cpu>& build) {
  Model<Cpu> model;
  model.add("first", Linear<Cpu>(build, "first", {.in = 1, .out = 32}));
  model.add("gelu", gelu<Cpu>());
  model.add("last", Linear<Cpu>(build, "last", {.in = 32, .out = 1}));
  model.loss = MeanSquaredError<Cpu>();
  return model;
}
int main(int count, char** arguments) try {
  run_job<Cpu>(count > 1 ? std::atoi(arguments[1]) : 1, connect_gloo, [](Comm<Cpu> world) {
    Cpu dev;
    Loader data(dev, FunctionSamples(4096, wave), {.global_batch = 64});
    TrainingOptions options{.layout = {.data = world.size()}, .store = {.deterministic = true}};
    TrainingRun run(dev, world, options, network, data);
    run.resume("waves_run");  // false at the first start
    while (run.steps() < 2000) {
      const auto step = run.step();
      if (step.step % 500 != 0) continue;
      if (world.rank() == 0) std::printf("step %d: loss %.3g\n", int(step.step), step.loss);
      run.save_in_background("waves_run");
    }
    run.save("waves_run");
  });
} catch (const Error& error) {
  std::fprintf(stderr, "error: %s\n", error.sentence().c_str());
  return 1;
}
