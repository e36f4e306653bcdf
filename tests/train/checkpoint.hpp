// A run that is saved, and loaded in another layout, continues like an uninterrupted run. On any device.
#pragma once

#include <dhp/train/background_saver.hpp>
#include <tests/support/everything.hpp>
#include <tests/support/folder.hpp>
#include <tests/support/layouts.hpp>

namespace tests {

struct CheckpointRun : RunResult {
  std::vector<std::string> remarks;  ///< the loader's remarks
};

template <class Dev>
class CheckpointCases {
 public:
  CheckpointCases(const EverythingOptions& model, const RunSettings& settings)
      : model_(model), settings_(settings) {}

  /// Trains up to step `last`, from the checkpoint in `load` or, if it is empty, from the beginning. Saves to `save`,
  /// unless it is empty: at the end, or after step `beside`, while training goes on.
  [[nodiscard]] CheckpointRun run(const Layout& layout, const RunSettings& settings,
                                  const std::string& load, const std::string& save, int last,
                                  int beside = -1, const WeightLoading& weights = {}) const {
    CheckpointRun result;
    std::mutex mutex;
    on_each_rank<Dev>(
        layout, settings, [&](ModelBuilder<Dev>& build) { return everything(build, model_); },
        [&](Dev& dev) { return everything_batch(dev, 0, 0, model_.vocabulary); },
        [&](Dev& dev, Mesh<Dev>& mesh, auto& pipeline, auto& trainer) {
          Checkpoint<Dev> checkpoint(mesh, pipeline.store(), trainer.optimizer(),
                                     trainer.replicas());
          if (!load.empty()) {
            const auto loaded = checkpoint.load(dev, load, weights);
            trainer.resume_after(loaded.state);
            if (mesh.world().rank() == 0) result.remarks = loaded.remarks;
          }
          BackgroundSaver<Dev> saver(checkpoint, trainer.may_record());
          trainer.before_update([&] { saver.before_update(dev); });
          while (trainer.steps_started() < last) {
            if (trainer.steps_started() == beside) saver.start(dev, save, trainer.state());
            const auto batches = assigned(mesh, settings.micro_batches, [&](std::int64_t k) {
              return everything_batch(dev, static_cast<int>(trainer.steps_started()), k,
                                      model_.vocabulary);
            });
            const auto report = trainer.step(batches);
            if (mesh.world().rank() == 0) result.losses.push_back(report.loss);
          }
          if (!save.empty() && beside < 0) saver.start(dev, save, trainer.state());
          saver.wait(dev);
          auto& store = pipeline.store();
          if (auto* replicas = trainer.replicas()) gather_weights(dev, store, *replicas);
          mesh.world().barrier();
          const std::lock_guard lock(mutex);
          for (const auto& parameter : store.parameters())
            if (mesh.data_index() == 0)
              place_part(parameter->spec, widened(dev, parameter->value),
                         result.values[parameter->spec.name]);
        });
    return result;
  }

  /// Saves after half of the steps (an even number), and loads in each of the layouts.
  void other_layouts(const Layout& saved, const std::vector<Layout>& layouts, int steps) const {
    const Folder directory;
    const auto straight = run({}, settings_, "", "", steps);
    (void)run(saved, settings_, "", directory.path, steps / 2);
    for (const auto& layout : layouts) {
      CAPTURE(to_text(layout));
      const auto rest = run(layout, settings_, directory.path, "", steps);
      REQUIRE(rest.losses.size() == static_cast<std::size_t>(steps / 2));
      CHECK(difference(straight.values, rest.values).worst < 1e-9);
      CHECK(std::abs(rest.losses.back() - straight.losses.back()) < 1e-9);
    }
  }

  /// A save in the background keeps the state of its own step, and does not change the steps that run meanwhile.
  void beside_training(const Layout& layout, bool record) const {
    const Folder directory;
    auto settings = settings_;
    settings.record = record;
    const auto straight = run(layout, settings, "", "", 6);
    CHECK(run(layout, settings, "", directory.path, 6, 3).values == straight.values);
    CHECK(run(layout, settings, directory.path, "", 6).values == straight.values);
  }

  void same_bits(int steps) const {
    for (const auto compute : {DType::f64, DType::bf16}) {
      const Folder directory;
      auto settings = settings_;
      settings.compute = compute;
      const auto straight = run({}, settings, "", "", steps);
      (void)run({}, settings, "", directory.path, steps / 2);
      const auto rest = run({}, settings, directory.path, "", steps);
      CHECK(rest.values == straight.values);
    }
  }

 private:
  EverythingOptions model_;
  RunSettings settings_;
};

}  // namespace tests
