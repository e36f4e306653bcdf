// ExclusiveUse: detects concurrent use of one communicator by two threads of a rank.
#pragma once

#include <dhp/comm/collective.hpp>

#include <atomic>
#include <utility>

namespace dhp::detail {

/// Marks `taken` while it lives; throws Error if another thread has marked it.
class ExclusiveUse {
 public:
  ExclusiveUse(std::atomic<bool>& taken, CallKind kind, CallSite where) {
    if (taken.exchange(true))
      throw Error(concat(name_of(kind), " at ", to_text(where),
                         ": another thread of this rank is using the communicator; split off one "
                         "for each thread"),
                  where);
    taken_ = &taken;
  }
  ExclusiveUse(ExclusiveUse&& other) noexcept : taken_(std::exchange(other.taken_, nullptr)) {}
  ExclusiveUse& operator=(ExclusiveUse&&) = delete;
  ~ExclusiveUse() {
    if (taken_ != nullptr) *taken_ = false;
  }

 private:
  std::atomic<bool>* taken_ = nullptr;
};

}  // namespace dhp::detail
