// The pipeline on the Cpu, and its cuts, which the host computes on any device.
#include <tests/parallel/pipeline.hpp>

TEST_CASE("two stages of weight 1, input 1, target 0: one step of SGD gives 1 - 2 lr") {
  PipelineCases<Cpu>::known_values();
}

TEST_CASE("ready() is called once per range and step, also for tied weights and empty steps") {
  for (const auto& kind : all_schedules)
    for (const int stages : {1, 2, 3})
      for (const int micro_batches : {0, 1, 5})
        PipelineCases<Cpu>::ready_once(stages, kind, kind.needed_chunks().value_or(3),
                                       micro_batches, {});
}

TEST_CASE("when a range is ready its gradient is complete") {
  PipelineCases<Cpu>::complete_when_ready();
}

TEST_CASE("stages are cut by the costs that are given") {
  PipelineCases<Cpu>::on_stages(
      2, {.costs = {1, 1, 1, 1, 4}},
      [](ModelBuilder<Cpu>& build) { return PipelineCases<Cpu>::chain(build, 5); },
      [](Cpu&, Mesh<Cpu>&, PipelineParallel<Cpu>& pipeline) {
        CHECK(pipeline.cuts() == std::vector<std::int64_t>{0, 4, 5});
        CHECK(pipeline.parameters_in_model().parameters == 5);
      });
  const auto refused = message_of([] {
    PipelineCases<Cpu>::on_stages(
        2, {.costs = {1, 1}},
        [](ModelBuilder<Cpu>& build) { return PipelineCases<Cpu>::chain(build, 5); },
        [](Cpu&, Mesh<Cpu>&, PipelineParallel<Cpu>&) {});
  });
  CHECK(has(refused, "2 costs were given for 5 layers"));
}

TEST_CASE("two parameters of one name are refused, on one stage and on two") {
  for (const int stages : {1, 2}) {
    const auto message = message_of([&] {
      PipelineCases<Cpu>::on_stages(
          stages, {},
          [](ModelBuilder<Cpu>& build) {
            auto model = PipelineCases<Cpu>::chain(build, 1);
            model.add("again", Linear<Cpu>(build, "linear0", {.in = 1, .out = 1, .bias = false}));
            return model;
          },
          [](Cpu&, Mesh<Cpu>&, PipelineParallel<Cpu>&) {});
    });
    CHECK(has(message, "the model has two parameters of the name linear0.weight"));
  }
}

TEST_CASE("layers that share running statistics are refused") {
  const auto message = message_of([&] {
    PipelineCases<Cpu>::on_stages(
        1, {},
        [](ModelBuilder<Cpu>& build) {
          auto model = PipelineCases<Cpu>::chain(build, 1);
          const BatchNorm<Cpu> norm(build, "norm", {.channels = 1});
          for (const auto* name : {"first", "second"}) model.add(name, norm);
          return model;
        },
        [](Cpu&, Mesh<Cpu>&, PipelineParallel<Cpu>&) {});
  });
  CHECK(has(message, "two layers share the running statistics norm."));
}
