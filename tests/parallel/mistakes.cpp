// Common mistakes in a model, a loss or a batch, and their error messages.
#include <dhp/cpu.hpp>
#include <tests/support/device_ranks.hpp>
#include <tests/support/regression.hpp>

#include <atomic>

namespace {

enum class Mistake {
  none,
  pushes_more,
  pops_more,
  pops_more_shapes,
  wrong_shape,
  wrong_type,
  wrong_gradient,
  moved_output,
  late_throw,
  null_parameter
};

/// The identity layer with one mistake.
struct Wrong {
  Mistake mistake;
  Tensor<Cpu> forward(Cpu& dev, Tensor<Cpu> x, Tape<Cpu>& tape) {
    if (mistake == Mistake::wrong_type) return Tensor<Cpu>::zeros(dev, DType::f64, x.shape());
    if (mistake == Mistake::moved_output) tape.push(std::move(x));
    else tape.push(x.share());
    if (mistake == Mistake::pushes_more) tape.push(x.share());
    return x;
  }
  Tensor<Cpu> backward(Cpu& dev, Tensor<Cpu> dy, Tape<Cpu>& tape) {
    (void)tape.pop();
    if (mistake == Mistake::late_throw)
      tape.weight_gradient(dev, [](Cpu&) { throw std::out_of_range("no such row"); });
    if (mistake == Mistake::pops_more) (void)tape.pop();
    if (mistake == Mistake::pops_more_shapes) (void)tape.pop_shape();
    if (mistake == Mistake::wrong_gradient) return std::move(dy).reshape({4, 3});
    return dy;
  }
  [[nodiscard]] Shape output_shape(const Shape& in, const MicroBatch<Cpu>&) const {
    return mistake == Mistake::wrong_shape ? in.with(1, 7) : in;
  }
  [[nodiscard]] double flops(const Shape&, const MicroBatch<Cpu>&) const { return 1; }
  void parameters(ParameterList<Cpu>& out) const {
    if (mistake == Mistake::null_parameter) out.push_back(nullptr);
  }
};

MicroBatch<Cpu> batch(Cpu& dev, std::int64_t index) {
  return regression_batch(index, random_tensor<float>(dev, {3, 4}, 1),
                          random_tensor<float>(dev, {3, 4}, 2));
}

struct Case {
  TrainingOptions options{};
  Mistake mistake = Mistake::none;
  bool recomputed = false;
  std::function<void(StepBatches<Cpu>&)> change = [](StepBatches<Cpu>&) {
  };  ///< changes a replica's batches
};

/// The error of one step of two micro-batches.
std::string message(const Case& of) {
  return message_of([&] {
    on_ranks_of<Cpu>(of.options.layout.size(), [&](Cpu& dev, Comm<Cpu> world) {
      const auto describe = [&](ModelBuilder<Cpu>& build) {
        split_first_and_second(build);
        Model<Cpu> model;
        model.add("first", Linear<Cpu>(build, "first", {.in = 4, .out = 4}));
        model.add("second", Linear<Cpu>(build, "second", {.in = 4, .out = 4}));
        if (of.recomputed) model.add("wrong", recompute<Cpu>(Wrong{of.mistake}));
        else model.add("wrong", Wrong{of.mistake});
        model.add("last", Linear<Cpu>(build, "last", {.in = 4, .out = 4}));
        model.loss = MeanSquaredError<Cpu>();
        return model;
      };
      TrainingRun run(dev, world, of.options, describe, batch(dev, 0));
      std::vector<MicroBatch<Cpu>> all;
      for (std::int64_t k = 0; k < 2; ++k) all.push_back(batch(dev, k));
      auto mine = assigned<Cpu>(all, run.mesh().data().rank(), run.mesh().data().size());
      of.change(mine);
      (void)run.step(mine);
    });
  });
}

}  // namespace

TEST_CASE("mistakes: a correct model is accepted") {
  CHECK(message({}) == "no error");
  CHECK(message({.options = {.layout = {.data = 2, .tensor = 2, .pipeline = 2}}}) == "no error");
}

TEST_CASE("mistakes: a layer that pushes and pops unequally is named") {
  for (const bool recomputed : {false, true}) {
    const auto error_for = [&](Mistake mistake) {
      return message({.mistake = mistake, .recomputed = recomputed});
    };
    CHECK(error_for(Mistake::pushes_more) ==
          "layer wrong pushes more on the tape in its forward pass than its backward pass pops");
    for (const auto mistake : {Mistake::pops_more, Mistake::pops_more_shapes})
      CHECK(has(error_for(mistake),
                "pops more from the tape in its backward pass than its forward pass "
                "pushed"));
  }
  CHECK(has(message({.mistake = Mistake::pops_more}), "layer wrong pops more"));
}

TEST_CASE("mistakes: a wrong output_shape is named, on one stage and on two") {
  for (const int stages : {1, 2})
    for (const auto& [mistake, sentence] :
         {std::pair(Mistake::wrong_shape,
                    "says [3, 7] for an input of [3, 4], but its forward pass gives [3, 4]"),
          std::pair(Mistake::moved_output,
                    "says [3, 4] for an input of [3, 4], but its forward pass gives []")})
      CHECK(has(message({.options = {.layout = {.pipeline = stages}}, .mistake = mistake}),
                concat("layer wrong: its output_shape ", sentence)));
}

TEST_CASE("mistakes: a layer with a wrong type, gradient or parameter is named") {
  for (const int stages : {1, 2}) {
    const auto error_for = [&](Mistake mistake) {
      return message({.options = {.layout = {.pipeline = stages}}, .mistake = mistake});
    };
    CHECK(has(error_for(Mistake::wrong_type),
              "layer wrong: its forward pass gives f64, and the model computes in f32"));
    CHECK(has(error_for(Mistake::wrong_gradient),
              "layer wrong: its backward pass gives [4, 3] of f32 for an input of [3, 4] of f32"));
    CHECK(has(error_for(Mistake::null_parameter), "layer wrong lists a parameter that is null"));
  }
}

TEST_CASE("mistakes: a parameter without a layer and a wrong loss are refused") {
  struct Loss : MeanSquaredError<Cpu> {
    [[nodiscard]] std::vector<std::string> term_names() const {
      return has_terms ? MeanSquaredError<Cpu>::term_names() : std::vector<std::string>{};
    }
    Tensor<Cpu> predict(Cpu& dev, Tensor<Cpu> x, Tape<Cpu>&) {
      return Tensor<Cpu>::zeros(dev, DType::i64, x.shape());
    }
    bool has_terms = true;
  };
  Cpu dev;
  const auto error_for = [&](bool listed, bool has_terms, std::int64_t out) {
    return message_of([&] {
      Parameter<Cpu> gain;
      const auto describe = [&](ModelBuilder<Cpu>& build) {
        Model<Cpu> model;
        model.add("only", Linear<Cpu>(build, "only", {.in = 4, .out = out}));
        if (!listed) gain = build.parameter({.name = "gain", .shape = {4}});
        Loss loss;
        loss.has_terms = has_terms;
        model.loss = loss;
        return model;
      };
      const auto all = batch(dev, 0);
      TrainingRun run(dev, Comm<Cpu>{}, TrainingOptions{}, describe, all);
      (void)run.step({&all, 1});
      (void)run.predict({&all, 1});
    });
  };
  CHECK(error_for(true, true, 4) ==
        "layer loss: predict returns i64 values; predictions are floating-point numbers");
  CHECK(has(error_for(false, true, 4), "parameter gain is in no layer's list"));
  CHECK(has(error_for(true, false, 4), "the model's loss has no terms, so it cannot be trained"));
  CHECK(error_for(true, true, 5) ==
        "layer loss: mean squared error: targets [3, 4] do not match the output [3, 5]");
}

TEST_CASE("mistakes: fewer classes or channels than tensor ranks are refused") {
  const auto error_for = [](auto make) {
    return message_of([&] {
      on_ranks_of<Cpu>(3, [&](Cpu&, Comm<Cpu> world) {
        ModelBuilder<Cpu> build(world);
        make(build);
      });
    });
  };
  CHECK(has(error_for([](auto& build) { CrossEntropy<Cpu>(build, 2, Placement::columns); }),
            "the classes of a cross-entropy cannot be split over the tensor axis: 2 for 3 ranks"));
  CHECK(has(error_for([](auto& build) { GatherChannels<Cpu>(build, 2, Placement::columns); }),
            "channels cannot be split over the tensor axis: 2 for 3 ranks"));
  CHECK(has(error_for([](auto& build) { ScatterChannels<Cpu>(build, 2, Placement::rows); }),
            "channels cannot be split over the tensor axis: 2 for 3 ranks"));
}

TEST_CASE("mistakes: logits or labels that do not fit a classifier's loss are refused") {
  const auto error_for = [](MeshShape layout, std::int64_t out, std::int64_t labels,
                            Placement logits) {
    return message_of([&] {
      on_ranks_of<Cpu>(layout.size(), [&](Cpu& dev, Comm<Cpu> world) {
        const auto describe = [&](ModelBuilder<Cpu>& build) {
          build.place({{"*", Placement::columns}});
          Model<Cpu> model;
          model.add("only", Linear<Cpu>(build, "only", {.in = 4, .out = out}));
          model.loss = ClassificationLoss<Cpu>(CrossEntropy<Cpu>(build, 4, logits));
          return model;
        };
        auto all = batch(dev, 0);
        all.counts = {{"samples", labels}};
        all.side.emplace_back("labels", Tensor<Cpu>::zeros(dev, DType::i32, {labels}));
        TrainingRun run(dev, world, TrainingOptions{.layout = layout}, describe, all);
        (void)run.step({&all, 1});
      });
    });
  };
  CHECK(error_for({}, 4, 3, Placement::columns) == "no error");
  CHECK(error_for({.tensor = 2}, 4, 3, Placement::columns) == "no error");
  for (const std::int64_t out : {2, 5})
    CHECK(has(error_for({}, out, 3, Placement::columns),
              concat("layer loss: cross_entropy: logits [3, ", out,
                     "] are not of this rank's 4 of 4 classes; give their layer as many outputs")));
  CHECK(has(error_for({.tensor = 2}, 4, 3, Placement::replicated),
            "logits [3, 2] are not of this rank's 4 of 4 classes"));
  CHECK(error_for({}, 4, 2, Placement::columns) ==
        "layer loss: cross_entropy: the labels [2] of i32 are not [3] of i32");
}

TEST_CASE("mistakes: a weight gradient that throws is named, also if it is deferred") {
  CHECK(message({.mistake = Mistake::late_throw}) == "layer wrong: no such row");
  CHECK(has(message({.options = {.layout = {.pipeline = 2}, .pipeline = {.schedule = ZeroBubble{}}},
                     .mistake = Mistake::late_throw}),
            ": layer wrong: no such row"));
}

TEST_CASE("mistakes: a step without micro-batches, or without some of them, is refused") {
  CHECK(message({.change = [](auto& mine) { mine = {}; }}) ==
        "a step of no micro-batches trains nothing");
  CHECK(message({.change = [](auto& mine) { mine.batches.pop_back(); }}) ==
        "a step of 2 micro-batches got 1; a single replica takes all");
  CHECK(
      has(message({.options = {.layout = {.data = 2}},
                   .change = [](auto& mine) { mine.batches.resize(mine.batches[0].index == 0); }}),
          "step 1 has 2 micro-batches, but the replicas of the data axis have 1 in all"));
}

TEST_CASE("mistakes: a learning rate that differs between ranks is refused") {
  for (const auto layout : {MeshShape{.data = 2}, {.tensor = 2}, {.pipeline = 2}}) {
    std::atomic<int> calls = 0;  // the start of a run asks each of the two ranks for the first rate
    const auto rate = [&](auto) { return ++calls <= 2 ? 0.1 : 1.0 / calls; };
    CHECK(has(message({.options = {.layout = layout, .trainer = {.learning_rate = {.own = rate}}}}),
              "ranks have different learning rates in step 1, so their weights differ now"));
  }
}

TEST_CASE("mistakes: duplicate or wrong micro-batch indices are refused") {
  CHECK(message({.change = [](auto& mine) { mine.batches[1].index = 0; }}) ==
        "two micro-batches of this step have the index 0; they are numbered from 0 over all "
        "replicas of the data axis");
  CHECK(has(message({.options = {.layout = {.data = 2}},
                     .change = [](auto& mine) { mine.batches[0].index = 0; }}),
            "no two replicas of the data axis may have a micro-batch of one index"));
  CHECK(has(message({.change = [](auto& mine) { mine.batches[1].index = 2; }}),
            "micro-batch 2 is not among the 2 of this step, over all replicas of the data axis; "
            "MicroBatch::index counts from 0 in each step"));
}

TEST_CASE("mistakes: a loss whose count differs from its micro-batch is refused") {
  for (const auto& layout : {MeshShape{}, MeshShape{.data = 2}, MeshShape{.pipeline = 2}})
    CHECK(has(message({.options = {.layout = layout},
                       .change =
                           [](auto& mine) {
                             for (auto& each : mine.batches)
                               if (each.index == 1) each.counts = {{"elements", 11}};
                           }}),
              "the loss counted 12 for its term \"elements\", but micro-batch 1 says 11"));
}

TEST_CASE("mistakes: options out of their range are refused") {
  const auto scale_error = [](LossScaleOptions scale) {
    return message({.options = {.trainer = {.loss_scale = scale}}});
  };
  CHECK(scale_error({.dynamic = true, .growth = 1}) ==
        "a dynamic loss scale grows by a factor above 1 after 1 step or more, got 1 after 2000");
  CHECK(has(scale_error({.dynamic = true, .growth_interval = 0}), "got 2 after 0"));
  CHECK(scale_error({.dynamic = true, .initial = 4, .largest = 2}) ==
        "the largest loss scale, 2, is below the first, 4");
  CHECK(has(scale_error({.initial = HUGE_VAL}), "a loss scale is finite and above 0, got inf"));
  CHECK(has(message({.options = {.layout = {.data = 2},
                                 .store = {.sharding = {.stage = ZeroStage::weights,
                                                        .redundancy = -1}}}}),
            "the redundancy of shares is 0 or more, got -1"));
  CHECK(has(message({.options = {.store = {.deterministic = true, .context_groups = -2}}}),
            "cannot be computed in -2 context groups"));
  for (const double cost : {-1.0, std::nan(""), HUGE_VAL})
    CHECK(has(
        message({.options = {.layout = {.pipeline = 2}, .pipeline = {.costs = {1, cost, 1, 1}}}}),
        "a layer's cost is finite and 0 or more, got "));
}

TEST_CASE("mistakes: data of a program's own that end on one rank only are refused") {
  struct Data : StepSource<Cpu> {
    Data(Cpu& device, std::int64_t end) : dev(device), last(end) {}
    void read_as(const DataReader&) override {}
    MicroBatch<Cpu> example() override { return batch(dev, 0); }
    StepBatches<Cpu> next() override { return {}; }
    void start_at(DataPosition) override {}
    [[nodiscard]] std::int64_t steps_done() const override { return 0; }
    [[nodiscard]] std::int64_t steps() const override { return last; }
    Cpu& dev;
    std::int64_t last;
  };
  const auto error = message_of([] {
    on_ranks_of<Cpu>(2, [](Cpu& dev, Comm<Cpu> world) {
      const auto describe = [](ModelBuilder<Cpu>& build) {
        Model<Cpu> model;
        model.add("only", Linear<Cpu>(build, "only", {.in = 4, .out = 4}));
        model.loss = MeanSquaredError<Cpu>();
        return model;
      };
      Data data(dev, 4 * world.rank());
      const TrainingRun run(dev, world, TrainingOptions{.layout = {.data = 2}}, describe, data);
    });
  });
  CHECK(has(error, "rank 1 reads 4 steps, and rank 0 steps without end; all ranks of a run need"));
}

TEST_CASE("mistakes: ids that are not i32 are named") {
  Cpu dev;
  ModelBuilder<Cpu> build(Comm<Cpu>{});
  Embedding<Cpu> table(build, "table", {.entries = 6, .columns = 4, .ids = "ids"});
  auto ids = batch(dev, 0);
  ids.side.emplace_back("ids", Tensor<Cpu>::zeros(dev, DType::i64, {3}));
  Tape<Cpu> tape({}, &ids);
  CHECK(message_of([&] { (void)table.forward(dev, {}, tape); }) ==
        "the ids in \"ids\" are i64; give them as i32");
}

TEST_CASE("mistakes: a model without layers or without a loss is refused") {
  Cpu dev;
  const auto error_for = [&](bool has_layer, bool has_loss) {
    return message_of([&] {
      const auto describe = [&](ModelBuilder<Cpu>& build) {
        Model<Cpu> model;
        if (has_layer) model.add("only", Linear<Cpu>(build, "only", {.in = 4, .out = 4}));
        if (has_loss) model.loss = MeanSquaredError<Cpu>();
        return model;
      };
      const TrainingRun run(dev, Comm<Cpu>{}, TrainingOptions{}, describe, batch(dev, 0));
    });
  };
  CHECK(has(error_for(true, false), "the model has no loss"));
  CHECK(has(error_for(false, true), "the model has no layers"));
  CHECK(error_for(true, true) == "no error");
}

TEST_CASE("mistakes: an id outside the embedding's table is named on each tensor rank") {
  for (const int ranks : {1, 2})
    for (const std::int32_t id : {-1, 6, 1 << 30}) {
      const auto error = message_of([&] {
        on_ranks_of<Cpu>(ranks, [&](Cpu& dev, Comm<Cpu> world) {
          const auto describe = [](ModelBuilder<Cpu>& build) {
            build.place({{"table.weight", Placement::words}});
            Model<Cpu> model;
            model.add("table",
                      Embedding<Cpu>(build, "table", {.entries = 6, .columns = 4, .ids = "ids"}));
            model.loss = MeanSquaredError<Cpu>();
            return model;
          };
          auto of_ids = batch(dev, 0);
          of_ids.input = {};
          of_ids.side.emplace_back(
              "ids", Tensor<Cpu>::from_host(dev, {3}, std::vector<std::int32_t>{5, id, 0}));
          TrainingRun run(dev, world, TrainingOptions{.layout = {.tensor = ranks}}, describe,
                          of_ids);
          (void)run.step({&of_ids, 1});
        });
      });
      CHECK(has(error, concat("id ", id,
                              " of row 1 of \"ids\" is not among the 6 entries of table.weight")));
    }
}
