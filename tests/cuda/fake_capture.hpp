// A capture of the fake CUDA runtime (fake_cuda.hpp): the work issued to the recorded streams, and its order.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

namespace fake {

class Queue;

/// Makes the work to run: once if the work is issued to a stream, or for each launch of the graph that contains it.
using Maker = std::function<std::function<void()>()>;

class Capture {
 public:
  struct Piece {
    Queue* stream;
    Maker work{};
    int passes = -1;     ///< the stream passes this point,
    int waits_for = -1;  ///< or it waits for this point
  };

  void add(Queue* stream, Maker work) {
    const std::lock_guard lock(mutex_);
    add(Piece{.stream = stream, .work = std::move(work)});
  }
  /// Adds a point to the stream and returns its number.
  [[nodiscard]] int pass(Queue* stream) {
    const std::lock_guard lock(mutex_);
    const int point = static_cast<int>(points_.size());
    add(Piece{.stream = stream, .passes = point});
    points_.push_back(clocks_[stream]);
    return point;
  }
  void wait(Queue* stream, int point) {
    const std::lock_guard lock(mutex_);
    add(Piece{.stream = stream, .waits_for = point});
    for (const auto& [other, pieces] : points_[static_cast<std::size_t>(point)]) {
      auto& known = clocks_[stream][other];
      known = std::max(known, pieces);
    }
  }
  /// Ends the capture. Returns whether `origin` has waited for all work of the other streams.
  [[nodiscard]] bool end(Queue* origin) {
    const std::lock_guard lock(mutex_);
    over_ = true;
    for (const auto& [stream, clock] : clocks_)
      if (clocks_[origin][stream] < clock.at(stream)) return false;
    return true;
  }

  [[nodiscard]] bool over() {
    const std::lock_guard lock(mutex_);
    return over_;
  }
  [[nodiscard]] const std::vector<Piece>& pieces() const { return pieces_; }  ///< after end()
  [[nodiscard]] std::size_t points() const { return points_.size(); }
  [[nodiscard]] std::vector<Queue*> streams() const {
    std::vector<Queue*> all;
    for (const auto& [stream, clock] : clocks_) all.push_back(stream);
    return all;
  }

 private:
  using Clock = std::map<Queue*, std::size_t>;  // pieces of each stream that come before

  void add(Piece piece) {
    ++clocks_[piece.stream][piece.stream];
    pieces_.push_back(std::move(piece));
  }
  std::mutex mutex_;
  std::vector<Piece> pieces_;
  std::map<Queue*, Clock> clocks_;
  std::vector<Clock> points_;
  bool over_ = false;
};

}  // namespace fake
