// TrainingRun: the same results as its parts assembled by hand, in any layout, from micro-batches or a loader.
#include <dhp/cpu.hpp>
#include <dhp/train/run_files.hpp>
#include <dhp/train/stop_signal.hpp>
#include <tests/support/device_ranks.hpp>
#include <tests/support/folder.hpp>
#include <tests/support/regression.hpp>

#include <unistd.h>

namespace {

/// Sample i has the input (0.1 i, 1) and the target sin(0.1 i).
struct Waves {
  std::int64_t count = 12;
  [[nodiscard]] std::int64_t size() const { return count; }
  [[nodiscard]] HostBatch collate(std::span<const std::int64_t> indices, std::int64_t) const {
    const auto n = static_cast<std::int64_t>(indices.size());
    std::vector<double> x, y;
    for (const auto index : indices) {
      x.insert(x.end(), {0.1 * static_cast<double>(index), 1.0});
      y.push_back(std::sin(0.1 * static_cast<double>(index)));
    }
    HostBatch batch;
    batch.input = HostArray({n, 2}, x);
    batch.side.emplace_back("targets", HostArray({n, 1}, y));
    batch.counts.emplace_back("elements", n);
    return batch;
  }
};

Model<Cpu> network(ModelBuilder<Cpu>& build) {
  split_first_and_second(build);
  Model<Cpu> model;
  model.add("first", Linear<Cpu>(build, "first", {.in = 2, .out = 8}));
  model.add("gelu", gelu<Cpu>());
  model.add("second", Linear<Cpu>(build, "second", {.in = 8, .out = 1}));
  model.loss = MeanSquaredError<Cpu>();
  return model;
}

using Options = TrainingOptionsOf<std::variant<Bucketed, Plain>, OptimizerChoice>;

Options options_of(MeshShape layout) {
  return {.layout = layout,
          .store = {.compute = DType::f64, .deterministic = true, .seed = 5},
          .reducer = Bucketed{.bytes = 64},
          .optimizer = SgdOptions{.momentum = 0.9},
          .trainer = {.learning_rate = {.peak = 0.05}, .clip = 1}};
}
constexpr LoaderOptions loading{.global_batch = 12, .micro_batch = 2, .shuffle = false};

std::vector<MicroBatch<Cpu>> all_batches(Cpu& dev) {
  Loader<Cpu, Waves> loader(dev, Waves{}, loading);
  return std::move(loader.next().batches);
}

struct Found {
  std::vector<double> losses;
  double held_out = 0;
  std::int64_t counted = 0;
  friend bool operator==(const Found&, const Found&) = default;
};

/// m = 0.9 m + g, w -= lr m, for the elements that this rank holds.
class OwnMomentum final : public BufferedOptimizer<Cpu> {
 public:
  OwnMomentum(Cpu& dev, ParameterStore<Cpu>& store)
      : BufferedOptimizer(dev, store, {"own_momentum"}) {}
  [[nodiscard]] std::string name() const override { return "own"; }
  void apply(Cpu& dev, ConstView<Cpu> state) override {
    const auto now = read_step_state<Cpu>(dev, state);
    if (!now.applies()) return;
    for (const auto& part : store_.held())
      for (std::int64_t at = 0; at < part.range.size(); ++at) {
        auto& m = buffer(0).data<double>()[part.range.first + at];
        m = 0.9 * m + now.gradient_scale * store_.gradients().data<double>()[part.range.first + at];
        part.value.data<double>()[at] -= now.learning_rate * m;
      }
  }
};
TrainingRun<Cpu>::MakeOptimizer own_momentum() {
  return [](Cpu& dev, ParameterStore<Cpu>& store, const Norms<Cpu>&) {
    return std::make_unique<OwnMomentum>(dev, store);
  };
}
using Own = TrainingRun<Cpu>::MakeOptimizer;
static_assert(!std::is_convertible_v<SgdOptions, Own>);  // options belong in TrainingOptions

Found train(const Options& options, bool from_loader) {
  Found found;
  std::mutex mutex;
  on_ranks_of<Cpu>(options.layout.size(), [&](Cpu& dev, Comm<Cpu> world) {
    Loader loader(dev, Waves{}, loading);
    TrainingRun run(dev, world, options, network, loader);
    const auto all = all_batches(dev);
    Found mine;
    for (int step = 0; step < 4; ++step)
      mine.losses.push_back((from_loader ? run.step() : run.step(all)).loss);
    Loader pass(dev, Waves{7}, evaluation_pass({.global_batch = 4, .micro_batch = 2}));
    const auto held_out = run.evaluate(pass).value();
    mine.held_out = held_out.value();
    mine.counted = held_out.terms.at(0).count;
    CHECK(run.evaluate(all).terms.at(0).count == 12);
    const std::lock_guard lock(mutex);
    found = mine;
  });
  return found;
}

Found train_by_hand() {
  Found found;
  Cpu dev;
  const auto options = options_of({});
  Mesh<Cpu> mesh(Comm<Cpu>{}, {});
  ModelBuilder<Cpu> build(mesh);
  const auto all = all_batches(dev);
  PipelineParallel<Cpu> stage(dev, network(build), mesh, {}, all.front(), options.store);
  DataParallel replicas(dev, stage, mesh.data());
  Norms<Cpu> norms(mesh.tensor(), mesh.pipeline(), stage.parameters_in_model());
  Sgd<Cpu> optimizer(dev, stage.store(), {.momentum = 0.9});
  Trainer trainer(dev, replicas, mesh, optimizer, norms, options.trainer);
  for (int step = 0; step < 4; ++step)
    found.losses.push_back(trainer.step(assigned<Cpu>(all, 0, 1)).loss);
  return found;
}

}  // namespace

TEST_CASE("training run: losses have the bits of a run put together by hand") {
  CHECK(train(options_of({}), false).losses == train_by_hand().losses);
}

TEST_CASE("training run: replicas and stages have the same losses, the tensor axis nearly") {
  const auto serial = train(options_of({}), false);
  CHECK(serial.losses.back() < serial.losses.front());
  CHECK(serial.counted == 7);
  CHECK(train(options_of({}), true) == serial);
  CHECK(train(options_of({.tensor = 2}), false).losses.back() ==
        Approx(serial.losses.back()).epsilon(1e-12));
  for (const auto& layout : {MeshShape{.data = 3}, MeshShape{.data = 2, .pipeline = 2}})
    for (const bool from_loader : {false, true}) {
      const auto found = train(options_of(layout), from_loader);
      CHECK(found.losses == serial.losses);
      CHECK(found.held_out == Approx(serial.held_out).epsilon(1e-12));
      CHECK(found.counted == serial.counted);
    }
}

TEST_CASE("training run: options choose the optimizer") {
  for (const OptimizerChoice& choice :
       {OptimizerChoice(SgdOptions{}), OptimizerChoice(LarsOptions{}),
        OptimizerChoice(AdamWOptions{}), OptimizerChoice(LambOptions{})}) {
    auto options = options_of({.data = 2});
    options.optimizer = choice;
    CHECK(train(options, true).losses.back() < train(options, true).losses.front());
  }
}

TEST_CASE("training run: a custom optimizer works with ZeRO and checkpoints of other layouts") {
  const auto expected = train(options_of({}), false).losses;
  const Folder folder;
  std::vector<double> losses;
  std::mutex mutex;
  auto sharded = options_of({.data = 2});
  sharded.store.sharding.stage = ZeroStage::optimizer;
  for (const auto& options : {sharded, options_of({.pipeline = 2})})
    on_ranks_of<Cpu>(2, [&](Cpu& dev, Comm<Cpu> world) {
      TrainingRun run(dev, world, options, network, example_batch(dev, Waves{}, 2), own_momentum());
      const bool goes_on = options.layout.pipeline == 2;
      CHECK(run.resume(folder.path) == goes_on);
      for (int step = 0; step < 2; ++step) {
        const double loss = run.step(all_batches(dev)).loss;
        const std::lock_guard lock(mutex);
        if (world.rank() == 0) losses.push_back(loss);
      }
      if (!goes_on) run.save(folder.path);
    });
  REQUIRE(losses.size() == 4);
  for (std::size_t step = 0; step < losses.size(); ++step)
    CHECK(losses[step] == Approx(expected[step]).epsilon(1e-14));
  Cpu dev;
  CHECK(has(message_of([&] {
              TrainingRun run(dev, Comm<Cpu>{}, options_of({}), network,
                              example_batch(dev, Waves{}, 2));
              (void)run.resume(folder.path);
            }),
            "own"));
}

TEST_CASE("training run: a custom schedule runs like the built-in ones, and is checked") {
  const auto serial = train(options_of({}), false);
  auto options = options_of({.pipeline = 2});
  const auto forwards_then_backwards = [](bool complete) {
    return [complete](int, int, int micro_batches, int) {
      std::vector<Action> list;
      for (int m = 0; m < micro_batches; ++m) list.push_back({Action::Kind::forward, 0, m});
      for (int m = complete ? 0 : 1; m < micro_batches; ++m)
        list.push_back({Action::Kind::backward, 0, m});
      return list;
    };
  };
  options.pipeline.schedule = AnySchedule("mine", forwards_then_backwards(true));
  CHECK(train(options, false).losses == serial.losses);
  options.pipeline.schedule = AnySchedule("mine", forwards_then_backwards(false));
  CHECK(has(message_of([&] { (void)train(options, false); }),
            "without the backward of micro-batch 0"));
}

TEST_CASE("training run: a signal ends all ranks after the same step, with every report seen") {
  const StopSignal asked;
  std::array<std::vector<std::int64_t>, 2> seen;
  on_ranks_of<Cpu>(2, [&](Cpu& dev, Comm<Cpu> world) {
    auto& mine = seen.at(static_cast<std::size_t>(world.rank()));
    Loader loader(dev, Waves{}, loading);
    TrainingRun run(dev, world, options_of({.data = 2}), network, loader);
    // Only rank 1 asks for the signal.
    run.stop_when([&] { return world.rank() == 1 && asked(); });
    run.after_step([&](const StepReport& report) {
      mine.push_back(report.step);
      if (world.rank() == 0 && report.step == 3) ::kill(::getpid(), SIGTERM);
    });
    while (!run.stopped()) run.step();
    CHECK(run.steps() == mine.back());
  });
  CHECK(seen[0].size() >= 3);
  CHECK(seen[0].front() == 1);
  CHECK(seen[0] == seen[1]);
}

TEST_CASE("training run: a stop during a pass makes all ranks leave it after the same step") {
  for (const bool predicts : {false, true})
    for (const auto& layout : {MeshShape{.data = 2}, MeshShape{.pipeline = 2}})
      on_ranks_of<Cpu>(2, [&](Cpu& dev, Comm<Cpu> world) {
        TrainingRun run(dev, world, options_of(layout), network, example_batch(dev, Waves{}, 2));
        int questions = 0;
        run.stop_when([&] { return ++questions > 3 && world.rank() == 1; });
        Loader pass(dev, Waves{40}, evaluation_pass({.global_batch = 4, .micro_batch = 2}));
        const auto whole = [&] {
          return predicts ? run.predict(pass).has_value() : run.evaluate(pass).has_value();
        };
        CHECK_FALSE(whole());
        CHECK(run.stopped());
        CHECK(pass.steps_done() == 3);
        CHECK_FALSE(whole());  // the next pass, before its first step
        CHECK(pass.steps_done() == 0);
      });
}

TEST_CASE("training run: predictions of a pass are in sample order") {
  std::vector<std::vector<double>> found;
  std::mutex mutex;
  for (const auto& layout : {MeshShape{}, MeshShape{.data = 2}})
    on_ranks_of<Cpu>(layout.size(), [&](Cpu& dev, Comm<Cpu> world) {
      TrainingRun run(dev, world, options_of(layout), network, example_batch(dev, Waves{}, 2));
      Loader pass(dev, Waves{7}, evaluation_pass({.global_batch = 4, .micro_batch = 2}));
      std::vector<double> mine;
      const auto all = run.predict(pass);
      REQUIRE(all.has_value());
      for (const auto& array : *all) {
        const auto values = array.values<double>();
        mine.insert(mine.end(), values.begin(), values.end());
      }
      const std::lock_guard lock(mutex);
      if (world.rank() == 0) found.push_back(mine);
      else CHECK(mine.empty());
    });
  REQUIRE(found.size() == 2);
  CHECK(found[0].size() == 7);
  CHECK(std::set(found[0].begin(), found[0].end()).size() == 7);
  CHECK(found[1] == found[0]);
}

TEST_CASE("training run: float data trains in each precision") {
  Cpu dev;
  const auto loss = [&](DType compute) {
    Loader data(dev,
                FunctionSamples(32,
                                [](std::int64_t index) -> Sample {
                                  const auto x = static_cast<float>(index) / 32;
                                  return {.input = {x, 1}, .target = {x * x}};
                                }),
                loading);
    TrainingRun run(dev, Comm<Cpu>{}, {.store = {.compute = compute}}, network, data);
    (void)run.step();
    return run.step().loss;
  };
  const double exact = loss(DType::f64);
  CHECK(loss(DType::f32) == Approx(exact).epsilon(1e-5));
  for (const auto narrow : {DType::bf16, DType::f16})
    CHECK(loss(narrow) == Approx(exact).epsilon(0.02));
}

TEST_CASE("training run: saves may alternate between two folders, each with its own lock") {
  Cpu dev;
  const Folder one, other;
  TrainingRun run(dev, Comm<Cpu>{}, options_of({}), network, example_batch(dev, Waves{}, 2));
  const std::string spelled =
      one.path + "/../" + std::filesystem::path(one.path).filename().string();
  for (const auto& folder : {one.path, other.path, spelled, other.path + "/"}) {
    (void)run.step(all_batches(dev));
    run.save(folder);
  }
  CHECK(newest_checkpoint(one.path)->second.about["steps"] == 3);
  CHECK(newest_checkpoint(other.path)->second.about["steps"] == 4);
  TrainingRun second(dev, Comm<Cpu>{}, options_of({}), network, example_batch(dev, Waves{}, 2));
  for (const auto& folder : {one.path, other.path}) {
    CHECK(second.resume(folder));
    for (int attempt = 0; attempt < 2; ++attempt)
      CHECK(has(message_of([&] { second.save(folder); }), "is in use by another run"));
  }
}

TEST_CASE("training run: a run resumed from one folder may also use its second folder") {
  Cpu dev;
  const Folder last, best;
  const auto begun = [&] {
    return TrainingRun(dev, Comm<Cpu>{}, options_of({}), network, example_batch(dev, Waves{}, 2));
  };
  {
    auto run = begun();
    for (const auto& folder : {best.path, last.path}) {
      (void)run.step(all_batches(dev));
      run.save(folder);
    }
  }
  auto run = begun();
  CHECK(run.resume(last.path));
  (void)run.step(all_batches(dev));
  const auto way_out = "files().prepare(DIRECTORY, true) if the run keeps a second one";
  CHECK(has(message_of([&] { run.save(best.path); }), way_out));
  run.files().prepare(best.path, true);
  run.save(best.path);
  CHECK(dhp::CheckpointFolder(best.path).names() == std::vector<std::string>{"step-00000003"});
  run.save(last.path);
  CHECK(dhp::CheckpointFolder(last.path).names().size() == 2);
}

TEST_CASE("training run: earlier checkpoints stay, for any spelling of the loaded path") {
  Cpu dev;
  for (const auto* end : {"", "/", "/."}) {
    const Folder folder;
    for (int start = 0; start < 2; ++start) {
      TrainingRun run(dev, Comm<Cpu>{}, options_of({}), network, example_batch(dev, Waves{}, 2));
      if (start == 1) (void)run.files().load(folder / "step-00000002" + end);
      for (int step = start; step < 3 - start; ++step) {
        (void)run.step(all_batches(dev));
        run.save(folder.path);
      }
    }
    CHECK(dhp::CheckpointFolder(folder.path).names() ==
          std::vector<std::string>{"step-00000003", "step-00000002", "step-00000001"});
  }
}

TEST_CASE(
    "training run: a relative folder is recognized before it exists, and stays during a save") {
  Cpu dev;
  const Folder folder;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path);
  TrainingRun run(dev, Comm<Cpu>{}, options_of({}), network, example_batch(dev, Waves{}, 2));
  CHECK(run.files().hold("new", "new").empty());
  const auto go_away = [&] { std::filesystem::current_path(before); };
  CHECK(message_of([&] { run.files().save("new", {.may_commit = go_away}); }) == "no error");
  CHECK(dhp::CheckpointFolder(folder / "new").names().size() == 1);
}

TEST_CASE("training run: an evaluation on the training data does not change the training") {
  Cpu dev;
  auto short_training = loading;
  short_training.epochs = 3;
  std::vector<std::vector<double>> losses;
  for (const bool evaluates : {false, true}) {
    Loader data(dev, Waves{}, short_training);
    TrainingRun run(dev, Comm<Cpu>{}, options_of({}), network, data);
    auto& found = losses.emplace_back();
    while (!run.stopped()) {
      const auto done = run.steps();
      if (evaluates) CHECK(run.evaluate(data)->terms[0].count > 0);
      CHECK(data.steps_done() == done);
      found.push_back(run.step().loss);
    }
    if (evaluates) {
      CHECK(run.evaluate(data).has_value());
      CHECK(run.stopped());
    }
  }
  CHECK(losses[0].size() > 1);
  CHECK(losses[0] == losses[1]);
}

TEST_CASE("training run: its data must be at the start and belong to one run") {
  Cpu dev;
  Loader data(dev, Waves{}, loading), held_out(dev, Waves{}, evaluation_pass(loading));
  const auto make = [&](Loader<Cpu, Waves>& from) {
    return std::make_unique<TrainingRun<Cpu>>(dev, Comm<Cpu>{}, options_of({}), network, from);
  };
  const std::string taken = "another training run takes its steps from these data";
  auto one = make(data);
  CHECK(has(message_of([&] { (void)make(data); }), taken));
  (void)one->step();
  CHECK(data.steps_done() == 1);
  one.reset();
  CHECK(has(message_of([&] { (void)make(data); }), "but step 1 was taken"));
  data.start_at({});
  one = make(data);
  CHECK(one->step().step == 1);
  const auto two = make(held_out);
  CHECK(has(message_of([&] { (void)one->evaluate(held_out); }), taken));
}

TEST_CASE("training run: a custom learning rate works, also after a checkpoint") {
  const Folder folder;
  const auto losses = [&](bool own, bool resumes) {
    Cpu dev;
    Loader data(dev, Waves{}, loading);
    auto options = options_of({});
    auto& rate = options.trainer.learning_rate;
    rate = {.peak = 0.1, .total_steps = 6, .decay = Decay::linear};
    if (own) rate = {.own = [named = rate](std::int64_t step) { return named.at(step); }};
    TrainingRun run(dev, Comm<Cpu>{}, options, network, data);
    CHECK((run.resume(folder / "saves") == resumes));
    std::vector<double> seen;
    while (run.steps() < 6) {
      seen.push_back(run.step().loss);
      if (own && run.steps() == 3) run.save(folder / "saves");
    }
    return seen;
  };
  const auto named = losses(false, false);
  CHECK(losses(true, false) == named);
  CHECK(losses(true, true) == std::vector(named.begin() + 3, named.end()));
}

TEST_CASE("training run: ranks with different settings are refused at the start") {
  const auto error_for = [](auto change) {
    return message_of([&] {
      on_ranks_of<Cpu>(2, [&](Cpu& dev, Comm<Cpu> world) {
        auto options = options_of({.data = 2});
        auto describe = network;
        if (world.rank() == 1) change(options, describe);
        const TrainingRun run(dev, world, options, describe, all_batches(dev).front());
      });
    });
  };
  CHECK(error_for([](auto&, auto&) {}) == "no error");
  const auto differ = [&](const char* what, auto change) {
    CHECK(has(error_for(change), concat("rank 1 has another ", what,
                                        " than rank 0; all ranks of a run need the same")));
  };
  differ("seed", [](auto& options, auto&) { options.store.seed = 6; });
  differ("layout", [](auto& options, auto&) { options.layout = {.tensor = 2}; });
  differ("kind of reducer or optimizer",
         [](auto& options, auto&) { options.optimizer = AdamWOptions{}; });
  differ("kind of reducer or optimizer", [](auto& options, auto&) { options.reducer = Plain{}; });
  differ("optimizer", [](auto& options, auto&) { options.optimizer = SgdOptions{}; });
  differ("schedule", [](auto& options, auto&) { options.pipeline.schedule = GPipe{}; });
  differ("limit of gradients", [](auto& options, auto&) { options.trainer.clip = 2; });
  differ("momentum of batch norms",
         [](auto& options, auto&) { options.trainer.batch_norm_momentum = 0; });
  differ("learning rate", [](auto& options, auto&) { options.trainer.learning_rate.peak = 1; });
  differ("learning rate",
         [](auto& options, auto&) { options.trainer.learning_rate.own = [](auto) { return 1; }; });
  differ("list of parameters", [](auto&, auto& describe) {
    describe = [](ModelBuilder<Cpu>& build) {
      auto model = network(build);
      model.layers[2] = {"second", Linear<Cpu>(build, "other", {.in = 8, .out = 1})};
      return model;
    };
  });
}

TEST_CASE("training run: a function that makes no optimizer is refused") {
  Cpu dev;
  CHECK(has(message_of([&] {
              const TrainingRun run(dev, Comm<Cpu>{}, options_of({}), network,
                                    all_batches(dev).front(),
                                    [](auto&&...) { return std::unique_ptr<Optimizer<Cpu>>(); });
            }),
            "the function for a run's own optimizer has returned none"));
}

TEST_CASE("training run: ranks with different data are refused at the start and before a pass") {
  const auto error_for = [](bool trains) {
    return message_of([&] {
      on_ranks_of<Cpu>(3, [&](Cpu& dev, Comm<Cpu> world) {
        Loader whole(dev, Waves{}, loading);
        Loader mine(dev, Waves{world.rank() == 2 ? 10 : 12}, evaluation_pass(loading));
        const auto options = options_of({.data = 3});
        if (trains) (void)TrainingRun(dev, world, options, network, mine);
        else (void)TrainingRun(dev, world, options, network, whole).evaluate(mine);
      });
    });
  };
  for (const bool trains : {true, false})
    CHECK(has(error_for(trains),
              "rank 2 reads 10 samples in steps of 12 and micro-batches of 2, 1 step, and rank 0 "
              "12 samples in steps of 12 and micro-batches of 2, 1 step"));
}
