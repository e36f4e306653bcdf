// LedgerOutput: the file that --ledger asks for: what this rank's communicators have been asked to do, written when the
// run ends, whichever way, and whenever the process gets SIGUSR1, while it hangs, too.
#pragma once

#include <dhp/comm/host_name.hpp>
#include <dhp/comm/ledger_file.hpp>
#include <dhp/comm/on_signal.hpp>
#include <dhp/comm/process_rank.hpp>
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

namespace examples {

class LedgerOutput {
 public:
  /// file: of --ledger; where that is empty nothing is written, and the signal does what it always does. To be made
  /// before other threads.
  LedgerOutput(const std::string& file, const dhp::ProcessRank& me) : me_(me) {
    if (file.empty()) return;
    path_ = dhp::ledger_path(file, me.rank);
    const auto folder = std::filesystem::path(path_).parent_path().string();
    dhp::check_system(::access(folder.empty() ? "." : folder.c_str(), W_OK) == 0,
                      "cannot write --ledger ", path_);
    // An earlier run's says nothing about this one, and a rank that hangs may not be able to replace it.
    ::unlink(path_.c_str());
    signal_.emplace(SIGUSR1, [this] { write(); });
  }
  LedgerOutput(const LedgerOutput&) = delete;
  LedgerOutput& operator=(const LedgerOutput&) = delete;
  ~LedgerOutput() {
    signal_.reset();
    write();
  }

  [[nodiscard]] const std::shared_ptr<dhp::Ledger>& ledger() const { return ledger_; }
  /// Any thread may do it.
  void write() noexcept {
    if (path_.empty()) return;
    const std::lock_guard lock(mutex_);
    try {
      dhp::LedgerFile::of(*ledger_, me_.rank, me_.size, dhp::process_name()).write(path_);
    } catch (const std::exception& error) {  // no reason to end a run
      std::fprintf(stderr, "rank %d: %s\n", me_.rank, error.what());
    }
  }

 private:
  dhp::ProcessRank me_;
  std::string path_;
  std::shared_ptr<dhp::Ledger> ledger_ = std::make_shared<dhp::Ledger>();
  std::mutex mutex_;
  std::optional<dhp::OnSignal> signal_;
};

}  // namespace examples
