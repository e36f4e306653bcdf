// RunReport: rank 0's report of a training run, to people on standard error, to programs in --metrics, and to
// TensorBoard.
#pragma once

#include <dhp/train/training_run.hpp>

#include "../options/options.hpp"
#include "event_file.hpp"
#include "metrics.hpp"
#include "progress.hpp"
#include "run_summary.hpp"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace examples {

/// Returns the tokens of these micro-batches without padding; 0 for samples without tokens.
template <class D>
[[nodiscard]] double tokens_in(const dhp::StepBatches<D>& mine) {
  std::int64_t tokens = 0;
  for (const auto& batch : mine.batches)
    for (const auto& [name, count] : batch.counts)
      if (name == "tokens") tokens += count;
  return static_cast<double>(tokens);
}
/// Estimates the tokens of all replicas in this step from those of this replica.
template <class D>
[[nodiscard]] double tokens_of_all(const dhp::StepBatches<D>& mine) {
  std::int64_t own = 0;
  for (const auto& batch : mine.batches) own += batch.samples;
  if (own == 0) return 0;
  return tokens_in(mine) / static_cast<double>(own) * static_cast<double>(mine.samples);
}

/// The work of steps. Samples count over all replicas, the other numbers on this replica only.
struct StepWork {
  double samples = 0, tokens = 0, forward_flop = 0;
  template <class D, class Flop>
  void add(const dhp::StepBatches<D>& mine, const Flop& flop) {
    samples += static_cast<double>(mine.samples);
    tokens += tokens_in(mine);
    for (const auto& batch : mine.batches) forward_flop += flop(batch);
  }
};

/// Returns null if waits are not counted: on GPUs streams wait, not the host.
[[nodiscard]] std::shared_ptr<const dhp::WaitClock> waits_of(auto& dev) {
  if constexpr (requires { dev.waits(); }) return dev.waits();
  else return nullptr;
}

/// Returns the id by which NVML finds a GPU; empty for other devices.
[[nodiscard]] std::string pci_bus_id_of(const auto& dev) {
  if constexpr (requires { dev.properties().pciBusID; }) {
    char id[32];
    const auto& gpu = dev.properties();
    std::snprintf(id, sizeof id, "%08X:%02X:%02X.0", gpu.pciDomainID, gpu.pciBusID,
                  gpu.pciDeviceID);
    return id;
  } else {
    return {};
  }
}

/// Returns further fields of a step's line of metrics.
template <class D>
[[nodiscard]] Measures more_fields(D& dev, const std::vector<dhp::MicroBatch<D>>& batches,
                                   bool replayed) {
  Measures fields;
  std::int64_t rows = 0;  // rows of tokens in this replica's micro-batches, with padding
  for (const auto& batch : batches)
    if (batch.has("token_ids")) rows += batch.at("token_ids").count();
  if (rows > 0) fields.emplace_back("token_rows", static_cast<double>(rows));
  if (!D::host_accessible) fields.emplace_back("replayed", replayed ? 1 : 0);
  if constexpr (requires { dev.memory().max_held_bytes(); })
    fields.emplace_back("peak_memory_bytes", static_cast<double>(dev.memory().max_held_bytes()));
  return fields;
}

/// Returns the calls that the device's libraries rejected since the last call; empty without libraries.
[[nodiscard]] std::vector<std::string> new_refusals(auto& dev) {
  if constexpr (requires { library_refusals(dev); }) return library_refusals(dev);
  else return {};
}

class RunReport {
 public:
  /// prints: true on rank 0; other ranks print nothing.
  RunReport(const RunOptions& options, bool prints, std::int64_t total_steps)
      : options_(options), prints_(prints), total_steps_(total_steps) {}

  /// Starts the bar and the output of steps. goes_on: the job has written before; an earlier rank 0 may still write.
  void start(std::int64_t steps_before, bool goes_on) {
    if (!prints_) return;
    // An evaluation alone does no later step again, so it keeps all lines.
    const auto kept = options_.evaluate_only && steps_before > 0 ? all_steps : steps_before;
    metrics_ = std::make_unique<Metrics>(options_.metrics, kept, replaces(goes_on), goes_on);
    const bool known =
        !last_step_.empty() && last_step_.front().second == static_cast<double>(steps_before);
    if (known && metrics_->last_step() < steps_before) metrics_->write(last_step_);
    start_curves(steps_before, known);
    progress_ = std::make_unique<Progress>(steps_before, total_steps_);
    restart_clock();
  }
  void end_of_steps() {
    if (progress_) progress_->finish();
  }
  void log(const auto&... parts) {
    if (!prints_) return;
    const auto text = dhp::concat(parts...);
    if (progress_) progress_->line(text);
    else std::fprintf(stderr, "%s\n", text.c_str());
  }
  /// Excludes the time since the last step from the next step's time.
  void restart_clock() { since_ = std::chrono::steady_clock::now(); }

  /// Reports a finished step. samples and tokens: of all replicas. more: fields of the model or device.
  void step(const dhp::StepReport& report, const std::vector<std::string>& terms,
            std::int64_t samples, const Measures& more, double tokens = 0) {
    const auto now = std::chrono::steady_clock::now();
    const double taken = std::chrono::duration<double>(now - since_).count();
    since_ = now;
    const double rate = static_cast<double>(samples) / taken;
    Measures fields{{"step", static_cast<double>(report.step)},
                    {"loss", report.loss},
                    {"grad_norm", report.gradient_norm},
                    {"lr", report.learning_rate},
                    {"samples_per_s", rate}};
    if (terms.size() > 1)
      for (std::size_t term = 0; term < terms.size(); ++term)
        fields.emplace_back("loss_" + terms[term], report.terms[term].mean());
    const bool scaled = options_.store.compute == dhp::DType::f16;
    if (scaled) fields.emplace_back("loss_scale", report.loss_scale);
    const bool delayed = std::holds_alternative<dhp::Delayed>(options_.reducer);
    if (scaled || delayed || options_.trainer.spike > 0)
      fields.emplace_back("skipped", report.skipped ? 1 : 0);
    fields.insert(fields.end(), more.begin(), more.end());
    last_step_ = fields;
    all_overflowed_ = all_overflowed_.value_or(true) && scaled && report.skipped && !report.spike;
    last_loss_ = report.loss;
    if (!metrics_) return;
    values_.take(report.step, "loss", report.loss);
    metrics_->write(fields);
    if (tokens > 0) fields.emplace_back("tokens_per_s", tokens / taken);
    draw(fields);
    progress_->step(report.step, report.loss, taken, rate,
                    report.spike     ? dhp::concat("skipped: the gradient norm is ",
                                                   short_number(report.gradient_norm), ", usual is ",
                                                   short_number(report.usual_norm))
                    : report.skipped ? delayed ? "skipped: no gradient has come yet"
                                               : "skipped: gradients overflowed"
                                     : "");
  }

  /// Warns if fp16 has skipped all steps. total: the run is at its end; then throws if the last loss is not finite.
  void check_applied(bool total) {
    if (!all_overflowed_.value_or(false)) return;
    const std::string what =
        "no step has changed the weights: the gradients of all overflowed in fp16";
    dhp::check(!total || std::isfinite(last_loss_), what, ", and the last loss is ", last_loss_,
               "; are weights or data damaged? --precision bf16 or fp32 finds the layer");
    log("warning: ", what, "; more steps lower the loss scale further");
  }
  /// Returns the line of the last step, also on ranks that write nothing. If the writing rank is lost, another rank
  /// continues after that line.
  [[nodiscard]] const Measures& last_step() const { return last_step_; }
  void know(const Measures& last_step) { last_step_ = last_step; }

  void evaluation(const std::string& when, std::int64_t step, const Measures& found) {
    std::string text = "evaluation " + when + ":";
    Measures line{{"step", static_cast<double>(step)}};
    for (const auto& [name, value] : found) {
      text += dhp::concat("  ", name, " ", short_number(value));
      line.emplace_back("held_out_" + name, value);
      values_.take(step, "held_out_" + name, value);
    }
    log(text);
    if (metrics_) metrics_->write(line);
    if (step != drawn_until_) draw(line);
  }
  void exposed_communication(std::int64_t step, double share) {
    if (metrics_)
      metrics_->write({{"step", static_cast<double>(step)}, {"exposed_communication", share}});
  }

  /// Reports the end of the run, on rank 0.
  void summary(RunSummary of_all) {
    if (!metrics_) return;
    of_all.values = values_.all();
    const auto lines = of_all.lines();
    if (lines.empty()) return;
    for (const auto& line : lines) log(line);
    metrics_->write_summary(of_all.last_step, of_all.fields());
  }

 private:
  static constexpr auto all_steps = std::numeric_limits<std::int64_t>::max();

  /// Returns how many steps of an existing metrics file a new run may replace. A short file may be the run's own, of a
  /// start that ended before the first save.
  [[nodiscard]] std::int64_t replaces(bool goes_on) const {
    if (options_.overwrite || goes_on) return all_steps;
    return options_.save.empty() ? 0 : 2 * options_.save_every;
  }
  /// Opens the event file. known: the last line of metrics is known, so events of that step may be dropped.
  void start_curves(std::int64_t steps_before, bool known) {
    const auto& directory = options_.tensorboard;
    if (directory.empty()) return;
    const bool goes_on = steps_before > 0 && EventFile::last_in(directory) > 0;  // else a new run
    const bool due = options_.evaluate_every > 0 && steps_before % options_.evaluate_every == 0;
    drawn_until_ = goes_on && !known && due ? steps_before : -1;
    const auto first = known || !goes_on        ? steps_before
                       : options_.evaluate_only ? all_steps  // does no later step again
                                                : steps_before + 1;
    events_ = std::make_unique<EventFile>(directory, first);
    events_->text(steps_before, "options", "```toml\n" + options_.configuration + "```\n");
    if (known) draw(last_step_);
  }
  void draw(const Measures& line) {
    if (!events_) return;
    Measures curves;
    const std::string held_out = "held_out_";
    for (const auto& [name, value] : line)
      if (name.starts_with(held_out))
        curves.emplace_back("held_out/" + name.substr(held_out.size()), value);
      else if (name != "step") curves.emplace_back("train/" + name, value);
    events_->scalars(static_cast<std::int64_t>(line.front().second), curves);
  }

  const RunOptions& options_;
  bool prints_;
  std::int64_t total_steps_;
  BestValues values_;
  std::unique_ptr<EventFile> events_;
  std::int64_t drawn_until_ = -1;  // an evaluation after this step is already drawn; -1: none
  Measures last_step_;
  std::optional<bool> all_overflowed_;  // all steps so far overflowed; unset before the first
  double last_loss_ = 0;
  std::unique_ptr<Metrics> metrics_;
  std::unique_ptr<Progress> progress_;
  std::chrono::steady_clock::time_point since_{};
};

}  // namespace examples
