// RunFiles: saves and resumes a training run. Needs nlohmann/json.
#pragma once

#include <dhp/core/append.hpp>
#include <dhp/train/background_saver.hpp>
#include <dhp/train/file_lock.hpp>
#include <dhp/train/training_run.hpp>

#include <exception>
#include <map>
#include <memory>
#include <string>
#include <utility>

namespace dhp {

/// The files of one training run, see TrainingRun::files(). All ranks make the same calls, except give_up().
template <class Dev>
class RunFiles : detail::NonCopyable {
 public:
  explicit RunFiles(TrainingRun<Dev>& run)
      : run_(run),
        checkpoint_(run.mesh(), run.store(), run.optimizer(), run.replicas(), run.data_in_common()),
        saver_(checkpoint_, run.trainer().may_record()) {
    run.trainer().before_update([this] {
      check_whole();
      saver_.before_update(run_.device());
    });
  }
  /// Waits for the current save, unless an exception ends the run. Ignores the save's failure; only wait() throws it.
  ~RunFiles() {
    if (std::uncaught_exceptions() > 0) return;
    try {
      wait();
    } catch (const std::exception&) {}
  }

  /// Loads a folder's newest checkpoint, a single checkpoint, or published weights, with the rules of Checkpoint::load.
  /// After a checkpoint, the run continues with the next step. Waits for the current save and throws its failure.
  LoadedCheckpoint load(const std::string& path, const WeightLoading& how = {}) {
    wait();  // a save may still read the state, and replace or remove checkpoints
    auto loaded = checkpoint_.load(run_.device(), path, how);
    run_.resume_after(loaded.state);
    from_ = loaded.from;
    const auto place =
        std::filesystem::path(place_of(from_)).parent_path();  // without the / at its end
    const auto known = known_.find((place.parent_path() / "").string());
    if (known != known_.end() && place.filename() == CheckpointFolder::name_of(loaded.state.step))
      known->second.prepared = false;  // its later checkpoints are to be replaced
    return loaded;
  }
  /// Loads the newest checkpoint of a folder. Returns false, and changes nothing, if the folder has none. Throws Error
  /// if it has weights instead, which begin a run and are loaded by load().
  bool resume(const std::string& folder) {
    wait();  // for the first checkpoint
    std::error_code error;
    check(!std::filesystem::is_regular_file(folder, error), folder,
          " is a file; give the folder of a run");
    if (!checkpoint_.is_there(run_.device(), folder)) return false;
    check(!WeightFiles::are_at(folder), folder,
          " has weights but no checkpoint to resume after; files().load() begins with weights");
    (void)load(folder);
    return true;
  }

  /// Saves to FOLDER/step-N and returns when the checkpoint is on disk. Throws SaveFailed on all ranks if one of them
  /// cannot write; earlier checkpoints are unchanged.
  void save(const std::string& folder, RunRecord record = {}) {
    save_in_background(folder, std::move(record));
    wait();
  }
  /// Saves while training continues. Waits for the previous save and throws its failure.
  void save_in_background(const std::string& folder, RunRecord record = {}) {
    wait();
    check_whole();
    detail::check_best_measure(record);
    auto& known = known_[place_of(folder)];
    if (!known.prepared) prepare(folder);
    detail::append(record.replaced, known.replaced);
    saver_.start(run_.device(), folder, run_.trainer().state(), record);
    saving_ = &known;
  }
  /// Waits for the current save.
  void wait() {
    auto* const folder = std::exchange(saving_, nullptr);
    saver_.wait(run_.device());
    if (folder != nullptr) folder->replaced.clear();
  }
  /// Abandons the current save. Returns true if a save was cut off; always false on ranks other than 0.
  bool give_up() {
    auto* const folder = std::exchange(saving_, nullptr);
    const bool cut_off = saver_.give_up();
    if (folder != nullptr && !cut_off) folder->replaced.clear();
    return cut_off;
  }
  /// Returns the seconds that training has spent waiting for saves.
  [[nodiscard]] double stalled_s() const { return saver_.stalled_s(); }

  /// Locks the folder against other runs, on rank 0. Throws InUse if another run still holds the lock after patience_s
  /// seconds; `what` names the folder in the message. Returns a warning if the file system has no locks, otherwise an
  /// empty text.
  std::string hold(const std::string& folder, const std::string& what, double patience_s = 0) {
    auto& known = known_[place_of(folder)];
    if (checkpoint_.rank() != 0 || known.held) return {};
    CheckpointFolder(folder).make();
    std::string warning;
    try {
      known.lock = detail::FileLock::of_run(folder + "/.lock", what, true, patience_s);
    } catch (const InUse&) {
      throw;
    } catch (const Error& error) {
      warning = error.sentence();
    }
    known.held = true;
    return warning;
  }
  /// Treats the folder's checkpoints as this run's own; for elastic jobs.
  void adopt(const std::string& folder) { known_[place_of(folder)].prepared = true; }
  /// Locks a folder and prepares its first save. Throws SaveFailed on all ranks if the folder is not writable, or if it
  /// has checkpoints of another run and `overwrite` is false; the run may then choose another folder.
  void prepare(const std::string& folder, bool overwrite = false) {
    auto& known = known_[place_of(folder)];
    const bool held = known.held;
    const auto problem = detail::problem_in([&] {
      (void)hold(folder, folder);
      known.replaced = checkpoint_.prepare(folder, from_, overwrite);
    });
    if (!problem.empty() && !held) known = {};  // the folder stays free for its own run
    checkpoint_.fail_together(run_.device(), problem);
    checkpoint_.check_shared(run_.device(), folder + "/.lock");
    known.prepared = true;
  }
  /// Removes the old checkpoints that this run replaces; else its first save does.
  void replace(const std::string& folder) {
    for (const auto& name : std::exchange(known_[place_of(folder)].replaced, {}))
      CheckpointFolder(folder).remove(name);
  }

 private:
  void check_whole() const {
    check(!checkpoint_.is_partly_loaded(),
          "loading has failed in the middle, so this run's state is of no step: load a whole "
          "checkpoint, or make a new run");
  }
  struct Folder {
    std::unique_ptr<detail::FileLock> lock{};  // null if the file system has no locks
    bool held = false, prepared = false;
    std::vector<std::string> replaced{};  // old checkpoints to remove with the first save
  };
  /// Returns the same text for all spellings of a path, also after its folder was moved and replaced by a link.
  [[nodiscard]] const std::string& place_of(const std::string& folder) {
    std::error_code error;
    const auto whole = std::filesystem::absolute(folder, error);  // else missing paths are relative
    auto& place = places_[whole.string()];
    if (place.empty()) place = (std::filesystem::weakly_canonical(whole, error) / "").string();
    return place;
  }

  TrainingRun<Dev>& run_;
  Checkpoint<Dev> checkpoint_;
  std::map<std::string, std::string> places_;  // by absolute path
  std::map<std::string, Folder> known_;        // folders of saves, by place_of()
  Folder* saving_ = nullptr;                   // of the current save
  BackgroundSaver<Dev> saver_;
  std::string from_;  // the folder or file that was loaded
};

}  // namespace dhp
