// BackgroundSaver saves while training continues. A save copies the state to host memory during the next forward and
// backward pass; only the next update waits for the copy. A thread on each rank then writes the rank's shard, and rank
// 0's thread makes the checkpoint visible.
#pragma once

#include <dhp/core/wait_clock.hpp>
#include <dhp/train/checkpoint.hpp>
#include <dhp/train/state_copy.hpp>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

namespace dhp {

/// Runs one save at a time, so the host holds at most one copy of the pieces that this rank writes.
template <class Dev>
class BackgroundSaver : detail::NonCopyable {
 public:
  /// Keeps a reference to checkpoint. Pass before_update() to the trainer. replayed: steps may be replayed graphs.
  BackgroundSaver(Checkpoint<Dev>& checkpoint, bool replayed)
      : checkpoint_(checkpoint), copy_(replayed) {}
  ~BackgroundSaver() { (void)give_up(); }

  /// Abandons an unfinished save; earlier checkpoints remain. Not collective. Returns true if a save was cut off;
  /// always false on ranks other than 0.
  bool give_up() {
    give_up_ = true;
    if (thread_.joinable()) thread_.join();
    return std::exchange(unfinished_, false) && checkpoint_.rank() == 0;
  }
  /// Starts a save after the previous save ends. Collective over the mesh. Throws SaveFailed on all ranks if the
  /// previous save failed or this save cannot begin; the caller may then start another save.
  void start(Dev& dev, const std::string& path, const RunState& state,
             const RunRecord& record = {}) {
    wait(dev);
    const WaitClock::Scope stall(&stalls_, WaitClock::saves);
    unfinished_ = true;
    auto save = [&] {
      try {
        return checkpoint_.begin_save(dev, path, state);
      } catch (const SaveFailed&) {
        unfinished_ = false;
        throw;
      }
    }();
    copy_.start(dev, checkpoint_.pieces_to_write(dev));
    written_ = false;
    give_up_ = false;
    not_written_ = not_visible_ = {};
    thread_ = std::thread(
        [this, save = std::move(save), whole = checkpoint_.with_state(state, record)]() mutable {
          work(save, whole);
        });
  }

  /// Waits until the copy of the state is complete. An update may then change the state.
  void before_update(Dev& dev) {
    const WaitClock::Scope stall(&stalls_, WaitClock::saves);
    copy_.finish(dev);
  }

  /// Waits until the current save, if any, is on disk. Collective. Throws SaveFailed on all ranks if one of them could
  /// not write.
  void wait(Dev& dev) {
    if (!thread_.joinable()) return;
    const WaitClock::Scope stall(&stalls_, WaitClock::saves);
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

  /// Returns the seconds that training has spent waiting for saves.
  [[nodiscard]] double stalled_s() const { return stalls_.seconds(WaitClock::saves); }

 private:
  void work(detail::CheckpointSave& save, const RunRecord& record) {
    not_written_ = detail::problem_in([&] {
      Cpu host;
      save.write(host, copy_.pieces());
    });
    const bool commits = checkpoint_.rank() == 0 && not_written_.empty();
    written_ = true;  // the training thread may now read not_written_
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
  bool unfinished_ = false;                // rank 0's saving thread resets it, too
  std::string not_written_, not_visible_;  // error messages, or empty; the thread writes them
  WaitClock stalls_;
};

}  // namespace dhp
