// SavedRun: loads a trainer's state, and saves it during training.
#pragma once

#include <dhp/train/export.hpp>
#include <dhp/train/run_files.hpp>

#include "../options/agreement.hpp"
#include "patience.hpp"
#include "training.hpp"

#include <filesystem>
#include <functional>
#include <string>
#include <utility>

namespace examples {

class SavedRun : dhp::detail::NonCopyable {
 public:
  /// Keeps references to its arguments. may_commit: for elastic jobs, as in RunRecord.
  SavedRun(const TrainingSetup& setup, dhp::TrainingRun<Dev>& run, RunReport& report,
           Patience& patience, std::function<void()> may_commit)
      : setup_(setup),
        options_(setup.options),
        run_(run),
        files_(run.files()),
        report_(report),
        patience_(patience),
        may_commit_(std::move(may_commit)),
        samples_(of_samples("training samples", setup.train)) {}

  ~SavedRun() { give_up(); }

  /// Loads what --load names, and checks that this run can save. total: steps of the run. Returns whether steps are
  /// left to do; if not, rank 0 only completes the end of the saved run. Collective.
  [[nodiscard]] bool begin(std::int64_t total) {
    const auto loaded = options_.load.empty() ? std::string() : load(total);
    if (done_) {
      if (rank() == 0) finish_end(loaded);
      return false;
    }
    if (!options_.save.empty()) files_.prepare(options_.save, options_.overwrite);
    if (rank() == 0)
      for (const auto& to : {options_.export_to, options_.tuning.export_adapter})
        if (!to.empty()) dhp::CheckpointFolder(to).make();
    return true;
  }
  /// Reserves --save for this run; call it before begin(). goes_on: an earlier rank 0 of the job may still hold it.
  void hold(bool goes_on) {
    if (options_.save.empty()) return;
    if (goes_on) files_.adopt(options_.save);
    std::string problem;
    try {
      problem = files_.hold(options_.save, "--save " + options_.save, goes_on ? 2 : 0);
    } catch (const dhp::InUse& error) {
      if (!goes_on) throw;
      problem = error.sentence();
    }
    if (!problem.empty())
      report_.log("warning: ", problem, "; other runs could write to ", options_.save);
  }
  /// Removes the checkpoints that this run replaces. An elastic job does so before its first step, because a later
  /// generation takes the newest checkpoint for its own.
  void replace() {
    if (!options_.save.empty()) files_.replace(options_.save);
  }
  /// Takes the measures of an evaluation; a save after the same step includes them.
  void evaluated(const Measures& found) {
    measures_ = {run_.trainer().steps_started(), found};
    if (const auto& best = options_.keep_best; !best.empty())
      (void)value_of("--keep-best", best, found);
  }
  /// Starts a background save. Collective.
  void save() {
    attempt([&] { files_.wait(); });
    attempt([&] {
      start();
      report_.log("saves ", folder());
    });
  }
  /// Abandons a save in progress; earlier checkpoints stay.
  void give_up() {
    if (files_.give_up())
      report_.log("warning: the save of ", options_.save, "/",
                  dhp::CheckpointFolder::name_of(saved_step_),
                  " is incomplete, since ranks ended or changed meanwhile; earlier checkpoints are "
                  "unchanged");
  }
  /// Saves the end of the run, and exports its weights. Collective.
  void end() {
    if (options_.save.empty()) return;
    const double stalled_s = files_.stalled_s();
    attempt([&] { files_.wait(); });
    if (saved_step_ != run_.trainer().steps_started()) start();
    files_.wait();
    report_.log("saved ", folder());
    if (options_.save_every > 0)
      report_.log("training has waited for saves for ", short_number(stalled_s), " s");
    if (rank() != 0) return;
    export_from(folder());
  }

 private:
  /// Runs a save. If it fails, the training of an elastic job continues, since its ranks hold its state.
  void attempt(auto save) {
    try {
      save();
    } catch (const dhp::SaveFailed& error) {
      if (!may_commit_) throw;
      saved_step_ = -1;
      report_.log("warning: ", error.sentence(),
                  "; this save has failed, earlier checkpoints are unchanged, and the job goes on");
    }
  }
  void start() {
    saved_step_ = run_.steps();
    files_.save_in_background(options_.save, record());
  }
  /// Returns the folder or file that was loaded.
  std::string load(std::int64_t total) {
    dhp::WeightLoading how{.compare = false,  // RunOptions::differing names each option
                           .all = options_.load_all,
                           .new_head = options_.new_head ? setup_.head : "",
                           .adapter = options_.tuning.adapter};
    if (!options_.tuning.export_adapter.empty()) how.adapter_head = setup_.head;
    const auto loaded = files_.load(options_.load, how);
    const auto step = loaded.state.step;
    for (const auto& remark : loaded.remarks)
      report_.log(options_.loads_only_weights() ? "" : "warning: ", remark);
    const bool none_asked_for = options_.evaluate_only || (total == 0 && step == 0);
    done_ = !none_asked_for && (step == total || patience_.is_over());
    if (done_) {
      report_.log("nothing is left to do: ", loaded.from, " is the end of this run of ",
                  dhp::detail::pluralize(total, "step"),
                  patience_.is_over() ? ", which has stopped early: " + patience_.sentence()
                                      : "; more --steps or --epochs go on from there");
      return loaded.from;
    }
    dhp::check(none_asked_for || step < total, "--load ", options_.load, " is after step ", step,
               " and this run ends after step ", total,
               ": --steps and --epochs count from the start of the original run");
    report_.log("loaded ", loaded.from, none_asked_for ? ": of step " : ": goes on after step ",
                step);
    for (const auto& option : options_.differing) report_.log("warning: ", option);
    if (!none_asked_for && step > 0)
      for (const auto& sentence : options_.not_saved()) report_.log("warning: ", sentence);
    if (const auto before = loaded.about.value("data", samples_); before != samples_)
      report_.log("warning: the data have ", samples_, ", those of the checkpoint ", before,
                  ": the samples or their order differ from here on");
    return loaded.from;
  }
  [[nodiscard]] dhp::RunRecord record() {
    dhp::RunRecord result{.files = setup_.files,
                          .keep = static_cast<std::size_t>(options_.keep),
                          .keep_best = options_.keep_best,
                          .may_commit = may_commit_};
    result.files["options.toml"] = options_.configuration;
    if (adapts()) result.files["adapter_config.json"] = config_of_adapter();
    result.about["options"] = nlohmann::ordered_json::parse(options_.remembered);
    result.about["data"] = samples_;
    if (measures_.first == saved_step_) result.measures = measures_.second;
    return result;
  }
  [[nodiscard]] std::string folder() {
    return options_.save + "/" + dhp::CheckpointFolder::name_of(run_.trainer().steps_started());
  }
  /// Does the work after the last save again, since the run that saved may have been killed before it.
  void finish_end(const std::string& checkpoint) {
    if (const dhp::CheckpointFolder folder(options_.save); options_.save == options_.load) {
      if (folder.latest().empty())
        folder.name_latest(std::filesystem::path(checkpoint).filename().string());
      if (options_.keep > 0)
        folder.keep(static_cast<std::size_t>(options_.keep),
                    dhp::detail::best_checkpoint(folder, options_.keep_best));
    }
    export_from(checkpoint);
  }
  void export_from(const std::string& checkpoint) {
    if (const auto& to = options_.export_to; !to.empty()) {
      write_files(to);
      dhp::export_weights(checkpoint, to + "/model.safetensors",
                          adapts() ? options_.tuning.adapters.scale() : 0);
      report_.log("exported ", to, adapts() ? ", the adapters merged into it" : "");
    }
    const auto& to = options_.tuning.export_adapter;
    if (to.empty()) return;
    write_files(to);
    dhp::export_adapter(checkpoint, to + "/adapter_model.safetensors", setup_.head);
    dhp::replace_file(to + "/adapter_config.json", config_of_adapter());
    report_.log("exported the adapter ", to);
  }
  void write_files(const std::string& to) const {
    dhp::CheckpointFolder(to).make();
    for (const auto& [name, text] : setup_.files) dhp::replace_file(to + "/" + name, text);
  }
  [[nodiscard]] int rank() { return run_.mesh().world().rank(); }
  [[nodiscard]] bool adapts() const { return !options_.tuning.adapters.layers.empty(); }
  [[nodiscard]] std::string config_of_adapter() const {
    return adapter_config(options_.tuning.adapters, setup_.head);
  }

  const TrainingSetup& setup_;
  const RunOptions& options_;
  dhp::TrainingRun<Dev>& run_;
  dhp::RunFiles<Dev>& files_;
  RunReport& report_;
  Patience& patience_;
  std::function<void()> may_commit_;
  const std::string samples_;                           // size and checksum of the training data
  bool done_ = false;                                   // the loaded run was already done
  std::int64_t saved_step_ = -1;                        // step of the last save
  std::pair<std::int64_t, Measures> measures_{-1, {}};  // step and measures of the last evaluation
};

}  // namespace examples
