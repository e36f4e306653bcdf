// A run that ends during a background save, and runs that go on with other options.
#include <dhp/cpu.hpp>
#include <dhp/extra/all_training_options.hpp>
#include <dhp/train/export.hpp>
#include <dhp/train/run_files.hpp>
#include <tests/support/device_ranks.hpp>
#include <tests/support/folder.hpp>

#include <sys/fsuid.h>

namespace {

Model<Cpu> network(ModelBuilder<Cpu>& build) {
  Model<Cpu> model;
  model.add("first", Linear<Cpu>(build, "first", {.in = 1, .out = 4}));
  model.add("second", Linear<Cpu>(build, "second", {.in = 4, .out = 1}));
  model.loss = MeanSquaredError<Cpu>();
  return model;
}
const FunctionSamples samples(32, [](std::int64_t index) {
  const auto x = static_cast<float>(index);
  return Sample{.input = {x}, .target = {2 * x}};
});
/// A run on one rank.
struct Alone {
  Cpu dev{};
  Loader<Cpu, decltype(samples)> data{dev, samples, {.global_batch = 8, .micro_batch = 8}};
  TrainingRun<Cpu> run{TrainingRun(dev, Comm<Cpu>(), TrainingOptions{}, network, data)};
  void save_after(std::int64_t step, const std::string& folder, RunRecord record = {}) {
    while (run.steps() < step) (void)run.step();
    run.files().save(folder, std::move(record));
  }
};
std::string steps_in(const std::string& folder) {
  std::string steps;
  for (const auto& name : CheckpointFolder(folder).names()) steps += name.back();
  return steps;
}

}  // namespace

TEST_CASE("run files: the end of a run waits for a background save, except after a failure") {
  const Folder folder;
  const auto train = [&](const std::string& to, bool fails) {
    on_ranks_of<Cpu>(4, [&](Cpu& dev, Comm<Cpu> world) {
      Loader data(dev, samples, {.global_batch = 8, .micro_batch = 2});
      const TrainingOptions options{.layout = {.data = 2, .pipeline = 2}};
      TrainingRun run(dev, world, options, network, data);
      (void)run.step();
      run.save_in_background(folder / to);
      dhp::check(!fails || world.rank() != 1, "lost");
    });
  };
  for (int time = 0; time < 5; ++time) {
    const auto to = concat("saves ", time);
    train(to, false);
    CHECK(dhp::CheckpointFolder(folder / to).names() == std::vector<std::string>{"step-00000001"});
  }
  CHECK(has(message_of([&] { train("failed", true); }), "rank 1: lost"));
}

TEST_CASE("run files: a run that goes on with another seed, optimizer setting or data is told so") {
  const Folder folder;
  const auto remarks_with = [&](std::uint64_t seed, double decay, LoaderOptions loading) {
    Cpu dev;
    Loader data(dev, samples, loading);
    TrainingRun run(
        dev, Comm<Cpu>(),
        TrainingOptions{.store = {.seed = seed}, .optimizer = SgdOptions{.weight_decay = decay}},
        network, data);
    if (!run.resume(folder / "run")) {
      (void)run.step();
      run.save(folder / "run");
    }
    return run.files().load(folder / "run").remarks;
  };
  const LoaderOptions eight{.global_batch = 8, .micro_batch = 8};
  CHECK(remarks_with(1, 0, eight).empty());
  CHECK(remarks_with(1, 0, {.global_batch = 8, .micro_batch = 8, .epochs = 3}).empty());
  const auto remarks =
      remarks_with(2, 0.1, {.global_batch = 8, .micro_batch = 4, .shuffle = false});
  REQUIRE(remarks.size() == 3);
  CHECK(
      has(remarks[0], " was saved with the seed 1 and this run has 2: it does not go on as the "));
  CHECK(has(remarks[1],
            "the settings \"momentum 0, weight decay 0\" and this run has \"momentum 0, "
            "weight decay 0.1\": "));
  CHECK(has(remarks[2],
            "the data \"32 samples in steps of 8 and micro-batches of 8, shuffled\" and "
            "this run has \"32 samples in steps of 8 and micro-batches of 4\": "));
}

TEST_CASE("run files: weights are frozen later, and frozen ones trained again, if asked") {
  const Folder folder;
  Cpu dev;
  const auto loaded = [&](bool frozen, const char* from, const char* to,
                          const WeightLoading& how = {}) {
    Loader data(dev, samples, {.global_batch = 8, .micro_batch = 8});
    TrainingRun run(
        dev, Comm<Cpu>(), TrainingOptions{},
        [&](ModelBuilder<Cpu>& build) {
          build.train_only([&](const auto& name) { return !frozen || name[0] == 's'; });
          return network(build);
        },
        data);
    LoadedCheckpoint result;
    if (*from != 0) result = run.files().load(folder / from, how);
    (void)run.step();
    run.save(folder / to);
    return result;
  };
  (void)loaded(true, "", "run");
  CHECK(has(message_of([&] { (void)loaded(false, "run", "none"); }),
            " has no tensor optimizer/exp_avg/first.weight; its weight was frozen then, or the "));
  const auto only = loaded(false, "run", "trained", {.only = true}).state;
  CHECK(only.step == 1);
  CHECK(only.device.updates == 0);  // the optimizer begins anew
  CHECK(only.batches_before == 1);
  const auto remarks = loaded(true, "trained", "again").remarks;
  REQUIRE(remarks.size() == 1);
  CHECK(has(remarks[0], " has 4 tensors for which this run has no place; the first is optimizer/"));
}

TEST_CASE("run files: all ranks hear of a refused folder, leave it free, and may save elsewhere") {
  const Folder folder;
  for (const auto* owner : {"first", "second"})
    on_ranks_of<Cpu>(2, [&](Cpu& dev, Comm<Cpu> world) {
      Loader data(dev, samples, {.global_batch = 8, .micro_batch = 2});
      TrainingRun run(dev, world, TrainingOptions{.layout = {.data = 2}}, network, data);
      const auto refusal = message_of([&] { run.save(folder / "first"); });
      if (owner == std::string("first")) return;
      CHECK(has(refusal, " has checkpoints of another run"));
      run.save(folder / "second");
      if (world.rank() == 0) CHECK(dhp::detail::FileLock(folder / "first/.lock").try_lock());
    });
  CHECK(dhp::CheckpointFolder(folder / "second").names().size() == 1);
}

TEST_CASE("run files: a checkpoint that is loaded during a save does not change what is saved") {
  const Folder folder;
  Cpu dev;
  const auto train = [&](auto body) {
    Loader data(dev, samples, {.global_batch = 8, .micro_batch = 8});
    TrainingRun run(dev, Comm<Cpu>(), TrainingOptions{}, network, data);
    body(run);
    return run.step().loss;
  };
  double loss = 0;
  for (int time = 0; time < 10; ++time) {  // the copy may be fast
    (void)train([&](auto& run) {
      for (const auto* to : {"first", "second"}) {
        (void)run.step();
        run.save_in_background(concat(folder / to, time));
      }
      (void)run.resume(concat(folder / "first", time));
    });
    const auto saved = train([&](auto& run) { (void)run.resume(concat(folder / "second", time)); });
    if (time == 0) loss = train([&](auto& run) { run.step(), run.step(); });
    CHECK(saved == loss);
  }
}

TEST_CASE("run files: a folder that was moved behind a link of its name is still this run's") {
  const Folder folder;
  Cpu dev;
  Loader data(dev, samples, {.global_batch = 8, .micro_batch = 8});
  TrainingRun run(dev, Comm<Cpu>(), TrainingOptions{}, network, data);
  for (int step = 1; step <= 2; ++step) {
    (void)run.step();
    run.save(folder / "run");
    if (step > 1) continue;
    std::filesystem::rename(folder / "run", folder / "moved");
    std::filesystem::create_directory_symlink(folder / "moved", folder / "run");
  }
  CHECK(CheckpointFolder(folder / "moved").names().size() == 2);
}

TEST_CASE("run files: after a failed step a save has the state before it") {
  const Folder folder;
  Cpu dev;
  const FunctionSamples damaged(32, [](std::int64_t index) {
    return Sample{.input = {1}, .target = {index == 20 ? std::nanf("") : 1}};
  });
  Loader data(dev, damaged, {.global_batch = 8, .micro_batch = 8, .shuffle = false});
  TrainingRun run(dev, Comm<Cpu>(), TrainingOptions{}, network, data);
  for (int step = 1; step <= 4; ++step)
    CHECK((message_of([&] { (void)run.step(); }) == "no error") == (step < 3));
  run.save(folder / "run");
  const auto about = newest_checkpoint(folder / "run")->second.about;
  CHECK(about["steps"] == 2);
  CHECK(about["samples"] == 16);
}

TEST_CASE("run files: all ranks hear of a step that is not finite, and may resume") {
  const Folder folder;
  const auto train = [&](bool is_damaged) {
    std::atomic<bool> damaged = is_damaged;
    const FunctionSamples seen(32, [&](std::int64_t index) {
      const auto x = static_cast<float>(index) / 32;
      return Sample{.input = {x}, .target = {damaged && index == 20 ? std::nanf("") : x}};
    });
    std::vector<double> losses(4);
    on_ranks_of<Cpu>(4, [&](Cpu& dev, Comm<Cpu> world) {
      Loader data(dev, seen, {.global_batch = 6, .micro_batch = 2, .shuffle = false});
      const TrainingOptions options{.layout = {.data = 2, .pipeline = 2},
                                    .store = {.sharding = {.stage = ZeroStage::weights}}};
      TrainingRun run(dev, world, options, network, data);
      while (run.steps() < 4) try {
          losses[dhp::detail::as_size(world.rank())] = run.step().loss;
          if (run.steps() == 1) run.save(folder / (is_damaged ? "damaged" : "whole"));
        } catch (const NotFinite& error) {
          CHECK(has(error.what(), "step 4: the loss is not finite"));
          CHECK(has(error.what(),
                    "the input gradient of layer loss is not finite (micro-batch 1) on rank "));
          damaged = false;
          CHECK(run.resume(folder / "damaged"));
        }
    });
    return losses;
  };
  CHECK(train(true) == train(false));
}

TEST_CASE("run files: a run replaces its own later checkpoints, and no others") {
  const Folder folder;
  const auto saves = folder / "saves";
  std::optional<Alone> first(std::in_place);
  for (int step = 1; step <= 5; ++step) first->save_after(step, saves);
  first.reset();
  std::filesystem::copy(saves + "/step-00000003", saves + "/best");
  std::filesystem::create_directory(saves + "/weights");
  export_weights(saves, saves + "/weights/model.safetensors");
  for (const auto* inside : {"/best", "/weights"}) {
    Alone other;
    (void)other.run.files().load(saves + inside);
    CHECK(has(message_of([&] { other.run.save(saves); }), " has checkpoints of another run"));
  }
  CHECK(steps_in(saves) == "54321");

  Alone back;
  (void)back.run.files().load(saves + "/step-00000002");
  back.run.files().prepare(saves);
  std::filesystem::remove_all(saves + "/step-00000005");  // by a person
  const auto full = [] { dhp::fail("the disk is full"); };
  CHECK_THROWS_AS(back.save_after(3, saves, {.may_commit = full}), SaveFailed);
  CHECK(steps_in(saves) == "4321");
  back.save_after(5, saves, {.keep = 2});
  CHECK(steps_in(saves) == "52");
  (void)back.run.files().load(saves + "/step-00000002");  // once more
  back.save_after(4, saves);
  CHECK(steps_in(saves) == "42");
  (void)back.run.files().load(saves + "/best");
  back.save_after(6, saves);
  CHECK(steps_in(saves) == "642");

  // What is loaded during a save comes after it.
  const auto slow = [] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); };
  (void)back.run.step();
  back.run.files().save_in_background(saves, {.keep = 1, .may_commit = slow});
  CHECK(back.run.resume(saves));
  CHECK(back.run.steps() == 7);
  back.save_after(8, saves);
  CHECK(steps_in(saves) == "87");
}

TEST_CASE("run files: of local steps, the first replica's optimizer state is saved") {
  const Folder folder;
  // Each replica sees only one of two features.
  const FunctionSamples features(4, [](std::int64_t index) {
    const float second = index >= 2 ? 1 : 0;
    return Sample{.input = {1 - second, second}, .target = {3}};
  });
  const auto describe = [](ModelBuilder<Cpu>& build) {
    Model<Cpu> model;
    model.add("only", Linear<Cpu>(build, "only", {.in = 2, .out = 1, .bias = false}));
    model.loss = MeanSquaredError<Cpu>();
    return model;
  };
  for (const int replicas : {2, 1})
    on_ranks_of<Cpu>(replicas, [&](Cpu& dev, Comm<Cpu> world) {
      Loader data(dev, features, {.global_batch = 4, .micro_batch = 2, .shuffle = false});
      AllTrainingOptions options;
      options.layout.data = replicas;
      if (replicas == 2) options.reducer = LocalSgd{.every = 4};
      TrainingRun run(dev, world, options, describe, data);
      if (!run.resume(folder / "run")) {
        for (int step = 0; step < 4; ++step) (void)run.step();
        return run.save(folder / "run");
      }
      const auto state = run.optimizer().state();
      CHECK(state.size() == 2);
      for (const auto& buffer : state) {
        const auto values = widened(dev, *buffer.buffer);
        CHECK(values[0] != 0);
        CHECK(values[1] == 0);
      }
    });
}

TEST_CASE("run files: only damage is passed over, and nobody goes on with half a state") {
  const Folder folder;
  const auto saves = folder / "saves", shard = saves + "/step-00000002/shard-00000.safetensors";
  Alone first;
  for (int step = 1; step <= 2; ++step) first.save_after(step, saves);
  const auto says = [](Alone& of, const std::string& path, const char* what) {
    CHECK(has(message_of([&] { (void)of.run.resume(path); }), what));
  };
  Alone other;
  says(other, saves + "/latest", " is a file; give the folder of a run");
  const auto weights = folder / "weights";
  std::filesystem::create_directory(weights);
  export_weights(saves, weights + "/model.safetensors");
  says(other, weights, " has weights but no checkpoint to resume after; ");

  using enum std::filesystem::perms;
  std::filesystem::permissions(folder.path, all);
  std::filesystem::permissions(shard, none);
  const auto user = static_cast<uid_t>(::setfsuid(65534));  // root may read all files
  says(other, saves, "shard-00000.safetensors: Permission denied");
  ::setfsuid(user);
  std::filesystem::permissions(shard, owner_all);
  const auto index_file = saves + "/step-00000002/index.json";
  auto index = CheckpointIndex::parse(text_of(index_file), index_file);
  index.about["format"] = 3;
  const auto as_it_was = text_of(index_file);
  replace_file(index_file, index.to_text());
  says(other, saves, " has the format 3, written by dhp \"");
  replace_file(index_file, as_it_was);
  CHECK(steps_in(saves) == "21");
  (void)other.run.step();  // nothing has changed it

  std::filesystem::remove_all(saves + "/step-00000001");
  auto bytes = text_of(shard);
  std::swap(bytes.back(), bytes[bytes.size() - 2]);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  const auto whole = text_of(shard);
  replace_file(shard, bytes);
  says(other, saves, "nothing in it is whole");
  const auto refused = [&](auto call) {
    CHECK(has(message_of(call), "loading has failed in the middle, so this run's state is of no "));
  };
  refused([&] { (void)other.run.step(); });
  refused([&] { other.run.save(folder / "elsewhere"); });
  replace_file(shard, whole);
  CHECK(other.run.resume(saves));
  CHECK(other.run.step().step == 3);
  const RunRecord record{.measures = {{"top-1", 1}}, .keep = 1, .keep_best = "top1"};
  CHECK(has(message_of([&] { other.run.files().save(folder / "elsewhere", record); }),
            "no measure is called top1, by which the best checkpoint is to be kept; choose one of "
            "top-1"));
}

TEST_CASE("a run's callback may replace itself") {
  Alone one;
  std::vector<std::string> calls;
  one.run.after_step([&, name = std::string(100, 'a')](const StepReport&) {
    one.run.after_step([&](const StepReport&) { calls.push_back("second"); });
    calls.push_back(name);
  });
  for (int step = 0; step < 2; ++step) (void)one.run.step();
  CHECK(calls == std::vector{std::string(100, 'a'), std::string("second")});
}
