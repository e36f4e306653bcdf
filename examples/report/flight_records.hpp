// FlightRecordOutput: the files of --flight-record with the last calls of this process's ranks. They are written when
// the run ends, even by an error, and whenever the process gets SIGUSR1, even if it hangs.
#pragma once

#include <dhp/comm/rendezvous/address.hpp>
#include <dhp/core/on_signal.hpp>
#include <dhp/core/system_error.hpp>

#include "flight_record_file.hpp"

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

class FlightRecordOutput : dhp::detail::NonCopyable {
 public:
  /// file: the value of --flight-record; if it is empty, nothing is written and the signal keeps its default action.
  /// Records `ranks` ranks, from rank `first` on, of a world of world_size. Construct it before other threads start.
  FlightRecordOutput(const std::string& file, int first, int ranks, int world_size)
      : first_(first), world_size_(world_size), recorders_(static_cast<std::size_t>(ranks)) {
    for (auto& recorder : recorders_) recorder = std::make_shared<dhp::FlightRecorder>();
    if (file.empty()) return;
    for (int rank = first; rank < first + ranks; ++rank) {
      paths_.push_back(flight_record_path(file, rank));
      const auto folder = std::filesystem::path(paths_.back()).parent_path().string();
      dhp::detail::check_system(::access(folder.empty() ? "." : folder.c_str(), W_OK) == 0,
                                "cannot write --flight-record ", paths_.back());
      // A record of an earlier run would mislead, and a hanging rank may be unable to replace it.
      ::unlink(paths_.back().c_str());
    }
    signal_.emplace(std::vector{SIGUSR1}, [this](int) { write(); });
  }
  ~FlightRecordOutput() {
    signal_.reset();
    write();
  }

  [[nodiscard]] const std::shared_ptr<dhp::FlightRecorder>& of(int rank) const {
    return recorders_.at(static_cast<std::size_t>(rank - first_));
  }
  [[nodiscard]] const std::vector<std::shared_ptr<dhp::FlightRecorder>>& all() const {
    return recorders_;
  }
  /// Any thread may call this.
  void write() noexcept {
    const std::lock_guard lock(mutex_);
    for (std::size_t at = 0; at < paths_.size(); ++at) {
      const int rank = first_ + static_cast<int>(at);
      try {
        FlightRecordFile::of(*recorders_[at], rank, world_size_, dhp::detail::process_name())
            .write(paths_[at]);
      } catch (const std::exception& error) {  // a failed write must not end a run
        std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
      }
    }
  }

 private:
  int first_;
  int world_size_;
  std::vector<std::shared_ptr<dhp::FlightRecorder>> recorders_;
  std::vector<std::string> paths_;  // one for each recorder, or none
  std::mutex mutex_;
  std::optional<dhp::detail::OnSignal> signal_;
};

}  // namespace examples
