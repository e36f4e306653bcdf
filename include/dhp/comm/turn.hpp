// Turn: two threads of one rank in one communicator would take each other's place; this refuses the second.
#pragma once

#include <dhp/comm/communicator.hpp>

#include <atomic>
#include <utility>

namespace dhp {

/// While a thread uses what `taken` guards.
class Turn {
 public:
  Turn() = default;  ///< nobody's
  /// Throws Error where another one does.
  Turn(std::atomic<bool>& taken, const char* operation, CallSite where) {
    if (taken.exchange(true))
      throw Error(concat(operation, " at ", to_text(where),
                         ": another thread of this rank is using the communicator; split off one "
                         "for each thread"),
                  where);
    taken_ = &taken;
  }
  Turn(Turn&& other) noexcept : taken_(std::exchange(other.taken_, nullptr)) {}
  Turn& operator=(Turn&&) = delete;
  ~Turn() {
    if (taken_ != nullptr) *taken_ = false;
  }

 private:
  std::atomic<bool>* taken_ = nullptr;
};

}  // namespace dhp
