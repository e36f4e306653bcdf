// SavedRun: what a trainer loads, and saves while it trains.
#pragma once

#include <dhp/train/background_saver.hpp>
#include <dhp/train/export.hpp>

#include "file_lock.hpp"
#include "patience.hpp"
#include "training.hpp"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace examples {

/// How the data are cut into steps; a run that goes on begins where the saved one stopped.
[[nodiscard]] inline dhp::Batching batching_of(const TrainingSetup& setup) {
  const auto& options = setup.options;
  dhp::Batching batching(setup.train.size(), options.global_batch, options.micro_batch);
  const auto saved = dhp::newest_checkpoint(options.load);
  if (saved && saved->second.about.contains("samples"))
    batching.resume_at({saved->second.about["steps"], saved->second.about["samples"]});
  return batching;
}

class SavedRun {
 public:
  /// Keeps references. may_commit: as RunRecord's; of an elastic job.
  SavedRun(Dev& dev, const TrainingSetup& setup, dhp::TrainingRun<Dev>& run,
           dhp::Batching& batching, RunReport& report, Patience& patience,
           std::function<void()> may_commit)
      : dev_(dev),
        setup_(setup),
        options_(setup.options),
        run_(run),
        batching_(batching),
        report_(report),
        patience_(patience),
        may_commit_(std::move(may_commit)),
        checkpoint_(run.mesh(), run.store(), run.optimizer()),
        saver_(checkpoint_, run.trainer().may_record()) {
    run.trainer().before_update([this] { saver_.before_update(dev_); });
  }

  SavedRun(const SavedRun&) = delete;
  SavedRun& operator=(const SavedRun&) = delete;
  ~SavedRun() { give_up(); }

  /// Loads what the options say, and makes sure that this run may save. total: steps of the run. Collective. Returns
  /// whether something is left to do; if not, nothing has changed.
  [[nodiscard]] bool begin(std::int64_t total) {
    const auto loaded = options_.load.empty() ? std::string() : load(total);
    if (done_) {
      if (checkpoint_.rank() == 0) export_from(loaded);
      return false;
    }
    if (!options_.save.empty())
      replaced_ = checkpoint_.prepare(options_.save, loaded, options_.overwrite);
    return true;
  }
  /// To be called before begin(): from here on no other run writes to --save. goes_on: the job had the folder before,
  /// and a rank 0 of before may still hold it.
  void hold(bool goes_on) {
    if (options_.save.empty() || checkpoint_.rank() != 0) return;
    dhp::CheckpointFolder(options_.save).make();
    try {
      lock_ = FileLock::of_run(options_.save + "/.lock", "--save " + options_.save, true,
                               goes_on ? 2 : 0);
    } catch (const dhp::Error& error) {
      if (!goes_on && dynamic_cast<const InUse*>(&error) != nullptr) throw;
      report_.say("warning: ", error.sentence(), "; other runs are not kept out of ",
                  options_.save);
    }
  }
  /// What an evaluation before the next step found.
  void evaluated(const Measures& found) {
    measures_ = {run_.trainer().steps_done(), found};
    const auto named = [&](const auto& measure) { return measure.first == options_.keep_best; };
    if (options_.keep_best.empty() || std::any_of(found.begin(), found.end(), named)) return;
    std::string names;
    for (const auto& [name, value] : found) names += (names.empty() ? "" : ", ") + name;
    dhp::fail("--keep-best ", options_.keep_best, ": this model's evaluations measure ", names);
  }
  /// Begins a save that goes on beside training. Collective.
  void save() {
    attempt([&] { saver_.wait(dev_); });
    attempt([&] {
      start();
      report_.say("saves ", folder());
    });
  }
  /// A save under way leaves what was saved before.
  void give_up() {
    if (saver_.give_up())
      report_.say("warning: the save of ", options_.save, "/",
                  dhp::CheckpointFolder::name_of(saved_step_),
                  " is not whole, since ranks ended or changed meanwhile; what was saved before is "
                  "as it was");
  }
  /// Saves the end of the run, and exports its weights. Collective.
  void end() {
    if (options_.save.empty()) return;
    const double stalled_s = saver_.stalled_s();
    attempt([&] { saver_.wait(dev_); });
    if (saved_step_ != run_.trainer().steps_done()) start();
    saver_.wait(dev_);
    report_.say("saved ", folder());
    if (options_.save_every > 0)
      report_.say("training has waited for saves for ", short_number(stalled_s), " s");
    if (checkpoint_.rank() != 0) return;
    export_from(folder());
  }

 private:
  /// A save. The state of an elastic job is in its ranks, whatever the disk does: where one fails, training goes on.
  template <class Save>
  void attempt(Save save) {
    try {
      save();
    } catch (const dhp::SaveFailed& error) {
      if (!may_commit_) throw;
      saved_step_ = -1;
      report_.say(
          "warning: ", error.sentence(),
          "; this save has failed, what was saved before is as it was, and the job goes on");
    }
  }
  void start() {
    auto progress = run_.trainer().progress();
    progress.samples = batching_.after(progress.steps).samples;
    saved_step_ = progress.steps;
    saver_.start(dev_, options_.save, progress, record());
  }
  /// Returns the folder or file that was loaded.
  std::string load(std::int64_t total) {
    const auto loaded = checkpoint_.load(dev_, options_.load,
                                         {.all = options_.load_all,
                                          .new_head = options_.new_head ? setup_.head : "",
                                          .adapter = options_.tuning.adapter});
    const auto& progress = loaded.progress;
    for (const auto& remark : loaded.remarks)
      report_.say(options_.begins_anew() ? "" : "warning: ", remark);
    const bool none_asked_for = options_.evaluate_only || (total == 0 && progress.steps == 0);
    patience_.resume(loaded.about.value("patience", nlohmann::ordered_json()));
    done_ = !none_asked_for && (progress.steps == total || patience_.is_over());
    if (done_) {
      report_.say("nothing is left to do: ", loaded.from, " is the end of this run of ", total,
                  total == 1 ? " step" : " steps",
                  patience_.is_over() ? ", which has stopped early: " + patience_.sentence()
                                      : "; more --steps or --epochs go on from there");
      return loaded.from;
    }
    dhp::check(none_asked_for || progress.steps < total, "--load ", options_.load,
               " is after step ", progress.steps, " and this run ends after step ", total,
               ": --steps and --epochs count from the start of the original run");
    if (progress.samples >= 0) batching_.resume_at({progress.steps, progress.samples});
    run_.trainer().resume(progress);
    report_.say("loaded ", loaded.from, none_asked_for ? ": of step " : ": goes on after step ",
                progress.steps);
    for (const auto& option : options_.differing) report_.say("warning: ", option);
    if (!none_asked_for && progress.steps > 0)
      for (const auto& sentence : options_.not_saved()) report_.say("warning: ", sentence);
    const auto now = batching_.dataset_size();
    const auto size = loaded.about.value("training_samples", now);
    if (size != now)
      report_.say("warning: the data have ", now, " training samples, when it was saved ", size,
                  ": samples come in another order from here on");
    return loaded.from;
  }
  [[nodiscard]] dhp::RunRecord record() {
    dhp::RunRecord made{.files = setup_.files,
                        .keep = static_cast<std::size_t>(options_.keep),
                        .keep_best = options_.keep_best,
                        .may_commit = may_commit_,
                        .replaced = std::exchange(replaced_, {})};
    made.files["options.toml"] = options_.configuration;
    if (adapts()) made.files["adapter_config.json"] = config_of_adapter();
    made.about["options"] = nlohmann::ordered_json::parse(options_.remembered);
    made.about["training_samples"] = batching_.dataset_size();
    if (const auto patience = patience_.to_json(); !patience.is_null())
      made.about["patience"] = patience;
    if (measures_.first == saved_step_) made.measures = measures_.second;
    return made;
  }
  [[nodiscard]] std::string folder() {
    return options_.save + "/" + dhp::CheckpointFolder::name_of(run_.trainer().steps_done());
  }
  void export_from(const std::string& checkpoint) {
    if (!options_.export_to.empty()) export_weights(checkpoint);
    if (!options_.tuning.export_adapter.empty()) export_adapter(checkpoint);
  }
  void export_weights(const std::string& checkpoint) {
    std::filesystem::create_directories(options_.export_to);
    dhp::export_weights(checkpoint, options_.export_to + "/model.safetensors",
                        adapts() ? options_.tuning.adapters.scale() : 0);
    for (const auto& [name, text] : setup_.files)
      dhp::replace_file(options_.export_to + "/" + name, text);
    report_.say("exported ", options_.export_to, adapts() ? ", the adapters merged into it" : "");
  }
  void export_adapter(const std::string& checkpoint) {
    const auto& to = options_.tuning.export_adapter;
    std::filesystem::create_directories(to);
    dhp::export_adapter(checkpoint, to + "/adapter_model.safetensors", setup_.head);
    for (const auto& [name, text] : setup_.files) dhp::replace_file(to + "/" + name, text);
    dhp::replace_file(to + "/adapter_config.json", config_of_adapter());
    report_.say("exported the adapter ", to);
  }
  [[nodiscard]] bool adapts() const { return !options_.tuning.adapters.layers.empty(); }
  [[nodiscard]] std::string config_of_adapter() const {
    return adapter_config(options_.tuning.adapters, setup_.head);
  }

  Dev& dev_;
  const TrainingSetup& setup_;
  const RunOptions& options_;
  dhp::TrainingRun<Dev>& run_;
  dhp::Batching& batching_;
  RunReport& report_;
  Patience& patience_;
  std::function<void()> may_commit_;
  dhp::Checkpoint<Dev> checkpoint_;
  std::unique_ptr<FileLock> lock_;  // of --save
  bool done_ = false;               // by what was loaded
  dhp::BackgroundSaver<Dev> saver_;
  std::int64_t saved_step_ = -1;                        // of the last save
  std::pair<std::int64_t, Measures> measures_{-1, {}};  // the last evaluation's, and its step
  std::vector<std::string> replaced_;                   // checkpoints that go with the first save
};

}  // namespace examples
