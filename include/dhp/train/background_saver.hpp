// Saving while training goes on. A save copies the state to host memory during the next forward and backward pass;
// only the next update waits for the copy. A thread of each rank then writes its shard, and that of rank 0 makes
// the checkpoint visible.
#pragma once

#include <dhp/train/checkpoint.hpp>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace dhp {

/// One save at a time: the host holds at most one copy of the pieces that this rank writes.
template <class Dev>
class BackgroundSaver {
 public:
  /// Keeps a reference. Give before_update() to the trainer.
  explicit BackgroundSaver(Checkpoint<Dev>& checkpoint) : checkpoint_(checkpoint) {}
  BackgroundSaver(const BackgroundSaver&) = delete;
  BackgroundSaver& operator=(const BackgroundSaver&) = delete;
  /// An unfinished save is given up on rank 0, and leaves what was saved before.
  ~BackgroundSaver() { stop(); }

  /// Collective over the mesh. Waits for the save before this one.
  void start(Dev& dev, const std::string& path, const TrainingProgress& progress,
             const RunRecord& record = {}) {
    wait(dev);
    const Stall stall(*this);
    pieces_ = checkpoint_.written_here(dev);
    bytes_ = 0;
    for (const auto& held : pieces_) bytes_ += held.piece.bytes();
    if constexpr (!Dev::host_accessible) {
      copies_.clear();
      for (const auto& held : pieces_)
        copies_.push_back(dev.start_copy_to_host(held.data.bytes(), held.piece.bytes()));
    }
    auto save = checkpoint_.begin_save(path, progress);
    copied_ = !Dev::host_accessible;
    written_ = false;
    give_up_ = false;
    thread_ = std::thread(
        [this, save = std::move(save),
         whole = checkpoint_.with_progress(progress, record)]() mutable { work(save, whole); });
  }

  /// Returns when the state may be written to.
  void before_update() {
    if (copied_) return;
    const Stall stall(*this);
    copied_.wait(false);
  }

  /// Collective. Returns when the save under way, if any, is on the disk. Throws where a rank could not write.
  void wait(Dev& dev) {
    if (!thread_.joinable()) return;
    const Stall stall(*this);
    written_.wait(false);
    for (const auto& error : gather_texts(dev, checkpoint_.mesh().world(), error_))
      if (!error.empty()) {
        stop();
        throw Error(error);
      }
    thread_.join();
    check(error_.empty(), error_);  // of the commit
    checkpoint_.mesh().world().barrier();
  }

  /// Seconds for which training has waited for saves.
  [[nodiscard]] double stalled_s() const { return stalled_s_; }
  /// Host memory of the last save.
  [[nodiscard]] std::size_t host_bytes() const { return bytes_; }

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

  void work(CheckpointSave& save, const RunRecord& record) {
    try {
      auto on_host = copies();
      Cpu host;
      save.write(host, on_host);
      set(written_);
      if (checkpoint_.rank() != 0) return;
      while (!save.all_written()) {
        if (give_up_) return;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      save.commit(record);
    } catch (const Error& error) {
      error_ = error.sentence();
    } catch (const std::exception& error) {
      error_ = error.what();
    }
    set(copied_);
    set(written_);
  }
  static void set(std::atomic<bool>& flag) {
    flag = true;
    flag.notify_all();
  }

  /// The pieces in host memory that nobody else writes to.
  [[nodiscard]] std::vector<HeldPiece<Cpu>> copies() {
    std::vector<HeldPiece<Cpu>> made;
    if constexpr (Dev::host_accessible) buffer_.resize(bytes_);
    std::size_t at = 0;
    for (std::size_t number = 0; number < pieces_.size(); ++number) {
      const auto& [piece, data, owned, sharded] = pieces_[number];
      std::byte* to = nullptr;
      if constexpr (Dev::host_accessible) {
        to = buffer_.data() + at;
        std::memcpy(to, data.bytes(), piece.bytes());
        at += piece.bytes();
      } else {
        copies_[number].wait_here();
        to = copies_[number].data();
      }
      made.push_back({piece, View<Cpu>(to, piece.dtype, {piece.count()})});
    }
    set(copied_);
    return made;
  }

  void stop() {
    give_up_ = true;
    if (thread_.joinable()) thread_.join();
  }

  Checkpoint<Dev>& checkpoint_;
  std::vector<HeldPiece<Dev>> pieces_;
  std::vector<std::byte> buffer_;
  std::vector<HostCopy> copies_;
  std::size_t bytes_ = 0;
  std::thread thread_;
  std::atomic<bool> copied_{true};
  std::atomic<bool> written_{true};
  std::atomic<bool> give_up_{false};
  std::string error_;
  double stalled_s_ = 0;
};

}  // namespace dhp
