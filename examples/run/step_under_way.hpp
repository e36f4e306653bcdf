// StepUnderWay: a rank's steps. Each is finished after the next one has been started, so the device never waits while
// the host reads and reports a step's numbers.
#pragma once

#include "../report/trace_report.hpp"
#include "rank_run.hpp"
#include "rank_work.hpp"

#include <cstdint>
#include <optional>
#include <utility>

namespace examples {

class StepUnderWay {
 public:
  /// Keeps references.
  StepUnderWay(Dev& dev, RankRun& rank, RankWork& work, RunReport& report, TraceReport<Dev>& traced)
      : dev_(dev), rank_(rank), run_(rank.run()), work_(work), report_(report), traced_(traced) {}

  /// Starts a step and finishes the one before, even if the new step is aborted.
  void start() {
    rank_.choose_values();
    auto batches = [&] {
      const TimeParts::In reading(work_.parts(), Part::data);
      return rank_.next();
    }();
    std::optional<dhp::StepTicket<Dev>> started;
    try {
      started = run_.start(batches);
    } catch (const dhp::Aborted&) {
      finish();
      throw;
    }
    finish();
    ticket_ = std::move(started);
    traced_.step_started();
    rank_.write_values();
  }
  /// Waits for the step that was started last.
  void finish() {
    if (!ticket_) return;
    const auto done = run_.finish(*ticket_);
    replayed_ += done.replayed ? 1 : 0;
    traced_.step_done();
    const auto& mine = ticket_->mine;
    work_.step_done(mine);
    report_.step(done, run_.term_names(), mine.samples,
                 more_fields(dev_, mine.batches, done.replayed), tokens_of_all(mine));
    for (const auto& line : new_refusals(dev_)) report_.say(line);
    ticket_.reset();
  }
  /// Finished steps that were replayed as a CUDA graph.
  [[nodiscard]] std::int64_t replayed() const { return replayed_; }

 private:
  Dev& dev_;
  RankRun& rank_;
  dhp::TrainingRun<Dev>& run_;
  RankWork& work_;
  RunReport& report_;
  TraceReport<Dev>& traced_;
  std::optional<dhp::StepTicket<Dev>> ticket_;
  std::int64_t replayed_ = 0;
};

}  // namespace examples
