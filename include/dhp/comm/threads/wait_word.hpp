// WaitWord: a word that threads block on. It counts changes, and its lowest bit says that the world has ended: one
// atomic word, so that "all have come" and "it is over" cannot both be true.
#pragma once

#include <atomic>
#include <cstdint>

namespace dhp::comm {

class WaitWord {
 public:
  [[nodiscard]] static bool ended(std::uint32_t word) { return (word & end_bit) != 0; }
  /// Whether something changed between two readings; the end of the world is no change.
  [[nodiscard]] static bool changed(std::uint32_t before, std::uint32_t now) {
    return ((before ^ now) & ~end_bit) != 0;
  }

  [[nodiscard]] std::uint32_t read() const { return word_; }
  /// Blocks while the word is what it was.
  void wait(std::uint32_t seen) const { word_.wait(seen); }

  void change() {
    word_ += one;
    word_.notify_all();
  }
  /// False, and nothing changes, when the world has ended.
  [[nodiscard]] bool change_unless_ended() {
    auto word = word_.load();
    do {
      if (ended(word)) return false;
    } while (!word_.compare_exchange_weak(word, word + one));
    word_.notify_all();
    return true;
  }
  void end() {
    word_ |= end_bit;
    word_.notify_all();
  }

 private:
  static constexpr std::uint32_t end_bit = 1;
  static constexpr std::uint32_t one = 2;
  std::atomic<std::uint32_t> word_ = 0;
};

}  // namespace dhp::comm
