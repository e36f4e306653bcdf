// Saving while training goes on. A save copies the state to host memory during the next forward and backward pass;
// only the next update waits for the copy. A thread of each rank then writes its shard, and that of rank 0 makes
// the checkpoint visible.
#pragma once

#include <dhp/train/checkpoint.hpp>
#include <dhp/train/state_copy.hpp>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

namespace dhp {

/// One save at a time: the host holds at most one copy of the pieces that this rank writes.
template <class Dev>
class BackgroundSaver : detail::NonCopyable {
 public:
  /// Keeps a reference. Give before_update() to the trainer. replayed: whether later steps may be replays.
  BackgroundSaver(Checkpoint<Dev>& checkpoint, bool replayed)
      : checkpoint_(checkpoint), copy_(replayed) {}
  ~BackgroundSaver() { (void)give_up(); }

  /// An unfinished save is given up on rank 0, and leaves what was saved before. Not collective. Returns whether there
  /// was one on rank 0, which is cut off.
  bool give_up() {
    give_up_ = true;
    if (thread_.joinable()) thread_.join();
    return std::exchange(unfinished_, false) && checkpoint_.rank() == 0;
  }
  /// Collective over the mesh. Waits for the save before this one. Throws SaveFailed, on all ranks, where that has
  /// failed or this one cannot begin; another one may be started after that.
  void start(Dev& dev, const std::string& path, const RunState& state,
             const RunRecord& record = {}) {
    wait(dev);
    const Stall stall(*this);
    unfinished_ = true;
    auto save = [&] {
      try {
        return checkpoint_.begin_save(dev, path, state);
      } catch (const SaveFailed&) {
        unfinished_ = false;
        throw;
      }
    }();
    copy_.start(dev, checkpoint_.written_here(dev));
    written_ = false;
    give_up_ = false;
    not_written_ = not_visible_ = {};
    thread_ = std::thread(
        [this, save = std::move(save), whole = checkpoint_.with_state(state, record)]() mutable {
          work(save, whole);
        });
  }

  /// Waits until the copy of the state is complete; from then on an update may change the state.
  void before_update(Dev& dev) {
    const Stall stall(*this);
    copy_.finish(dev);
  }

  /// Collective. Returns when the save under way, if any, is on the disk. Throws SaveFailed on all ranks where one of
  /// them could not write.
  void wait(Dev& dev) {
    if (!thread_.joinable()) return;
    const Stall stall(*this);
    written_.wait(false);
    try {
      checkpoint_.fail_together(dev, not_written_);
    } catch (const SaveFailed&) {
      (void)give_up();
      throw;
    }
    thread_.join();
    unfinished_ = false;
    checkpoint_.fail_together(dev, not_visible_);
  }

  /// Seconds for which training has waited for saves.
  [[nodiscard]] double stalled_s() const { return stalled_s_; }

 private:
  class Stall {
   public:
    explicit Stall(BackgroundSaver& saver) : saver_(saver) {}
    ~Stall() {
      saver_.stalled_s_ +=
          std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    }

   private:
    BackgroundSaver& saver_;
    std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  };

  void work(detail::CheckpointSave& save, const RunRecord& record) {
    not_written_ = detail::problem_in([&] {
      Cpu host;
      save.write(host, copy_.pieces());
    });
    const bool commits = checkpoint_.rank() == 0 && not_written_.empty();
    written_ = true;  // from here on the rank's thread may read not_written_
    written_.notify_all();
    if (!commits) return;
    not_visible_ = detail::problem_in([&] {
      while (!save.all_written()) {
        if (give_up_) return;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      save.commit(record);
      unfinished_ = false;
    });
  }

  Checkpoint<Dev>& checkpoint_;
  detail::StateCopy<Dev> copy_;
  std::thread thread_;
  std::atomic<bool> written_{true};
  std::atomic<bool> give_up_{false};
  bool unfinished_ = false;                // written by the thread, while it runs on rank 0
  std::string not_written_, not_visible_;  // errors, or empty; the thread writes them
  double stalled_s_ = 0;
};

}  // namespace dhp
