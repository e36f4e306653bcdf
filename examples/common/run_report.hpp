// RunReport: what rank 0 tells of a training run, to people on standard error and to programs in --metrics.
#pragma once

#include <dhp/train/training_run.hpp>

#include "options.hpp"
#include "progress.hpp"

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace examples {

/// Names and values for the progress line and the metrics.
using Measures = std::vector<std::pair<std::string, double>>;

/// What a step adds to its line of metrics beside the loss.
template <class D>
[[nodiscard]] Measures more_fields(D& dev, const std::vector<dhp::MicroBatch<D>>& batches,
                                   bool recorded) {
  Measures fields;
  std::int64_t rows = 0;  // of tokens in this replica's micro-batches, padding included
  for (const auto& batch : batches)
    if (batch.has("token_ids")) rows += batch.at("token_ids").count();
  if (rows > 0) fields.emplace_back("token_rows", static_cast<double>(rows));
  if (!D::host_accessible) fields.emplace_back("recorded", recorded ? 1 : 0);
  if constexpr (requires { dev.memory().most_held_bytes(); })
    fields.emplace_back("peak_memory_bytes", static_cast<double>(dev.memory().most_held_bytes()));
  return fields;
}

/// What libraries of the device have refused since this was asked last; where it has none, nothing.
template <class D>
[[nodiscard]] std::vector<std::string> new_refusals(D& dev) {
  if constexpr (requires { library_refusals(dev); }) return library_refusals(dev);
  else return {};
}

class RunReport {
 public:
  /// speaks: this is rank 0. Of others nothing is heard.
  RunReport(const RunOptions& options, bool speaks, std::int64_t total_steps)
      : options_(options), speaks_(speaks), total_steps_(total_steps) {}

  /// From now on there is a bar, and steps are written.
  void start(std::int64_t first_step) {
    if (!speaks_) return;
    metrics_ = std::make_unique<Metrics>(options_.metrics, first_step);
    const bool known =
        !last_step_.empty() && last_step_.front().second == static_cast<double>(first_step);
    if (known && metrics_->last_step() < first_step) metrics_->write(last_step_);
    progress_ = std::make_unique<Progress>(first_step, total_steps_);
    restart_clock();
  }
  void end_of_steps() {
    if (progress_) progress_->finish();
  }
  template <class... Parts>
  void say(const Parts&... parts) {
    if (!speaks_) return;
    const auto text = dhp::concat(parts...);
    if (progress_) progress_->line(text);
    else std::fprintf(stderr, "%s\n", text.c_str());
  }
  /// Time that no step has taken.
  void restart_clock() { since_ = std::chrono::steady_clock::now(); }

  /// One step that is done, of so many samples; more: fields that its model or device adds.
  void step(const dhp::StepReport& report, const std::vector<std::string>& terms,
            std::int64_t samples, const Measures& more) {
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
    if (options_.precision == dhp::DType::f16) {
      fields.emplace_back("loss_scale", report.loss_scale);
      fields.emplace_back("skipped", report.skipped ? 1 : 0);
    }
    fields.insert(fields.end(), more.begin(), more.end());
    last_step_ = fields;
    if (!metrics_) return;
    metrics_->write(fields);
    progress_->step(report.step, report.loss, taken, rate,
                    report.skipped ? "skipped: gradients overflowed" : "");
  }

  /// What a step has written or, on ranks that write nothing, would have. If the rank that writes is lost, another one
  /// knows its last line.
  [[nodiscard]] const Measures& last_step() const { return last_step_; }
  void know(const Measures& last_step) { last_step_ = last_step; }

  void evaluation(const std::string& when, std::int64_t step, const Measures& found) {
    std::string text = "evaluation " + when + ":";
    Measures line{{"step", static_cast<double>(step)}};
    for (const auto& [name, value] : found) {
      text += dhp::concat("  ", name, " ", short_number(value));
      line.emplace_back("held_out_" + name, value);
    }
    say(text);
    if (metrics_) metrics_->write(line);
  }
  void exposed_communication(double share) {
    if (metrics_)
      metrics_->write(
          {{"step", static_cast<double>(total_steps_)}, {"exposed_communication", share}});
  }

 private:
  const RunOptions& options_;
  bool speaks_;
  std::int64_t total_steps_;
  Measures last_step_;
  std::unique_ptr<Metrics> metrics_;
  std::unique_ptr<Progress> progress_;
  std::chrono::steady_clock::time_point since_{};
};

}  // namespace examples
