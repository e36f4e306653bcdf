// The memory of a rank: its limit, and its use.
#pragma once

#include "memory.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <string>

namespace examples {

/// Returns the memory that this rank may use: the user's limit, a share of the host's, or its GPU's free memory.
[[nodiscard]] MemoryLimit memory_limit(auto& dev, const RunOptions& options) {
  if (options.memory_limit_gb > 0)
    return {static_cast<std::size_t>(options.memory_limit_gb * 1e9), "as --memory-limit says"};
  if constexpr (requires { dev.memory().free_bytes(); }) {
    return {dev.memory().free_bytes(), "which its GPU has free"};
  } else {
    const auto process = options.process();
    const int ranks = process ? std::max(process->local_size, 1) : options.layout.size();
    return {host_memory_bytes() / static_cast<std::size_t>(ranks),
            ranks == 1 ? "which the host has free"
                       : dhp::concat("its share of the host's free memory for ", ranks, " ranks"),
            !process};
  }
}

/// A rank's memory: between steps, and its peak, with the section in which it last grew.
class MemoryUse {
 public:
  explicit MemoryUse(Dev& dev) : dev_(dev) {}
  void enter(dhp::Section section) {
    const auto now = dev_.memory().max_held_bytes();
    if (now > max_) grew_in_ = section_;
    max_ = now;
    section_ = section;
  }
  void between_steps() { at_rest_ = dev_.memory().in_use_bytes(); }
  [[nodiscard]] std::string text() {
    enter(section_);
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return dhp::concat("memory of rank 0 for tensors: ", bytes_text(at_rest_),
                       " between steps, at most ", bytes_text(max_), " in ", name_of(grew_in_),
                       "; its process took ",
                       bytes_text(static_cast<std::size_t>(usage.ru_maxrss) * 1024));
  }

 private:
  Dev& dev_;
  std::size_t at_rest_ = 0;
  std::size_t max_ = 0;
  dhp::Section section_ = dhp::Section::start;
  dhp::Section grew_in_ = dhp::Section::start;
};

}  // namespace examples
