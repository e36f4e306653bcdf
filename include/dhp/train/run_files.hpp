// RunFiles: what a training run saves, and what it goes on from. Needs nlohmann/json.
#pragma once

#include <dhp/train/background_saver.hpp>
#include <dhp/train/file_lock.hpp>
#include <dhp/train/training_run.hpp>

#include <memory>
#include <string>
#include <utility>

namespace dhp {

/// The files of one training run: TrainingRun::files(). All calls but give_up() are collective over the mesh.
template <class Dev>
class RunFiles {
 public:
  explicit RunFiles(TrainingRun<Dev>& run)
      : run_(run),
        checkpoint_(run.mesh(), run.store(), run.optimizer(), run.replicas()),
        saver_(checkpoint_, run.trainer().may_record()) {
    run.trainer().before_update([this] { saver_.before_update(run_.device()); });
  }

  /// The run goes on after the newest checkpoint of a folder, after one checkpoint, or begins with published weights:
  /// as Checkpoint::load.
  LoadedCheckpoint load(const std::string& path, const WeightLoading& how = {}) {
    auto loaded = checkpoint_.load(run_.device(), path, how);
    run_.resume_after(loaded.state);
    from_ = loaded.from;
    return loaded;
  }
  /// False, and nothing has happened, where the folder has no checkpoint.
  bool resume(const std::string& folder) {
    if (!checkpoint_.is_there(run_.device(), folder)) return false;
    (void)load(folder);
    return true;
  }

  /// Saves to FOLDER/step-N, and returns when that is on the disk. Throws SaveFailed on all ranks where one of them
  /// cannot write; what was saved before is as it was.
  void save(const std::string& folder, RunRecord record = {}) {
    save_in_background(folder, std::move(record));
    wait();
  }
  /// Training may go on during the save. Waits for the previous save, and throws its failure.
  void save_in_background(const std::string& folder, RunRecord record = {}) {
    if (prepared_ != folder) prepare(folder);
    const auto names = std::exchange(replaced_, {});
    record.replaced.insert(record.replaced.end(), names.begin(), names.end());
    saver_.start(run_.device(), folder, run_.trainer().state(), record);
  }
  /// Waits for the save that is under way.
  void wait() { saver_.wait(run_.device()); }
  /// The save under way ends unfinished. Returns whether there was one, on rank 0.
  bool give_up() { return saver_.give_up(); }
  /// Seconds for which training has waited for saves.
  [[nodiscard]] double stalled_s() const { return saver_.stalled_s(); }

  /// Keeps other runs out of the folder from here on. Throws detail::InUse if another run holds it for the whole
  /// patience; `what` names the folder in that message. Returns a sentence if the file system has no locks, else an
  /// empty text. Only rank 0 does anything.
  std::string hold(const std::string& folder, const std::string& what, double patience_s = 0) {
    if (checkpoint_.rank() != 0) return {};
    CheckpointFolder(folder).make();
    held_ = folder;
    try {
      lock_ = detail::FileLock::of_run(folder + "/.lock", what, true, patience_s);
    } catch (const detail::InUse&) {
      throw;
    } catch (const Error& error) {
      return error.sentence();
    }
    return {};
  }
  /// The checkpoints in the folder are this run's, whoever saved them: an elastic job's.
  void own(const std::string& folder) { prepared_ = folder; }
  /// Before the first save to a folder, which it holds: throws where it cannot be written to, and where it has
  /// checkpoints of another run, unless these may be overwritten.
  void prepare(const std::string& folder, bool overwrite = false) {
    if (held_ != folder) (void)hold(folder, folder);
    replaced_ = checkpoint_.prepare(folder, from_, overwrite);
    prepared_ = folder;
  }

 private:
  TrainingRun<Dev>& run_;
  Checkpoint<Dev> checkpoint_;
  std::unique_ptr<detail::FileLock> lock_;  // lock of the folder held_
  BackgroundSaver<Dev> saver_;
  std::string from_;                   // the folder or file that was loaded
  std::string held_, prepared_;        // the folder that is saved to
  std::vector<std::string> replaced_;  // checkpoints that go with the first save
};

}  // namespace dhp
