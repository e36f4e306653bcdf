// LedgerOutput: the files that --ledger asks for: what the communicators of this process's ranks have been asked to do,
// written when the run ends, whichever way, and whenever the process gets SIGUSR1, while it hangs, too.
#pragma once

#include <dhp/comm/ledger_file.hpp>
#include <dhp/comm/meet/address.hpp>
#include <dhp/comm/on_signal.hpp>
#include <dhp/core/system_error.hpp>

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace examples {

class LedgerOutput {
 public:
  /// file: of --ledger; where that is empty nothing is written, and the signal does what it always does. Of `ranks` ranks
  /// from the first on, in a world of that size. To be made before other threads.
  LedgerOutput(const std::string& file, int first, int ranks, int world_size)
      : first_(first), world_size_(world_size), ledgers_(static_cast<std::size_t>(ranks)) {
    for (auto& ledger : ledgers_) ledger = std::make_shared<dhp::Ledger>();
    if (file.empty()) return;
    for (int rank = first; rank < first + ranks; ++rank) {
      paths_.push_back(dhp::ledger_path(file, rank));
      const auto folder = std::filesystem::path(paths_.back()).parent_path().string();
      dhp::check_system(::access(folder.empty() ? "." : folder.c_str(), W_OK) == 0,
                        "cannot write --ledger ", paths_.back());
      // An earlier run's says nothing about this one, and a rank that hangs may not be able to replace it.
      ::unlink(paths_.back().c_str());
    }
    signal_.emplace(SIGUSR1, [this] { write(); });
  }
  LedgerOutput(const LedgerOutput&) = delete;
  LedgerOutput& operator=(const LedgerOutput&) = delete;
  ~LedgerOutput() {
    signal_.reset();
    write();
  }

  [[nodiscard]] bool asked_for() const { return !paths_.empty(); }
  [[nodiscard]] const std::shared_ptr<dhp::Ledger>& of(int rank) const {
    return ledgers_.at(static_cast<std::size_t>(rank - first_));
  }
  /// Any thread may do it.
  void write() noexcept {
    const std::lock_guard lock(mutex_);
    for (std::size_t at = 0; at < paths_.size(); ++at) {
      const int rank = first_ + static_cast<int>(at);
      try {
        dhp::LedgerFile::of(*ledgers_[at], rank, world_size_, dhp::process_name())
            .write(paths_[at]);
      } catch (const std::exception& error) {  // no reason to end a run
        std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
      }
    }
  }

 private:
  int first_;
  int world_size_;
  std::vector<std::shared_ptr<dhp::Ledger>> ledgers_;
  std::vector<std::string> paths_;  // as many, or none
  std::mutex mutex_;
  std::optional<dhp::OnSignal> signal_;
};

}  // namespace examples
