// RankRun: one rank's training run as its options describe it: model, data, traced values and verified steps.
#pragma once

#include <dhp/core/open_file.hpp>
#include <dhp/extra/verify.hpp>

#include "../report/value_trace.hpp"
#include "ranks.hpp"
#include "step_data.hpp"

#include <optional>
#include <utility>

namespace examples {

class RankRun {
 public:
  /// training: the library's options, made from those of the setup. Keeps references. Collective.
  RankRun(Dev& dev, dhp::Comm<Dev> world, const TrainingSetup& setup,
          const dhp::AllTrainingOptions& training)
      : dev_(dev),
        setup_(setup),
        options_(setup.options),
        data_(dev, setup),
        run_(
            dev, observed(dev, std::move(world), options_), training,
            [this](dhp::ModelBuilder<Dev>& build) { return described(build); }, data_.source()) {
    if (values_ && run_.mesh().world().rank() == 0)
      values_file_.emplace(options_.trace_values, O_WRONLY | O_CREAT | O_TRUNC);
    data_.begin(run_);
    if (options_.verify_every > 0)
      dhp::verify_every(run_, options_.verify_every,
                        [this](int ahead) { return data_.next_of(run_, ahead); });
    if (options_.synthetic_gradients)
      options_.prepare(run_, dhp::example_batch(dev_, setup_.train, options_.micro_batch));
  }

  [[nodiscard]] dhp::TrainingRun<Dev>& run() { return run_; }
  [[nodiscard]] StepData& data() { return data_; }
  /// Decides whether the next step's values are traced; call it before the step.
  void choose_values() {
    if (values_)
      values_->takes(options_.stop_after == 0 || options_.stop_after == run_.steps() + 1);
  }
  /// Writes the traced values of the step that was started last. Collective.
  void write_values() {
    if (!values_) return;
    const auto lines = values_->lines(dev_, run_.mesh().world(), run_.steps());
    if (run_.mesh().world().rank() == 0) values_file_->write(lines);
  }

 private:
  [[nodiscard]] dhp::Model<Dev> described(dhp::ModelBuilder<Dev>& build) {
    auto model = setup_.make_model(build);
    if (options_.trace_values.empty()) return model;
    values_.emplace(build.tensor.rank());
    return values_->traced(std::move(model));
  }

  Dev& dev_;
  const TrainingSetup& setup_;
  const RunOptions& options_;
  StepData data_;
  std::optional<ValueTrace<Dev>> values_;
  std::optional<dhp::OpenFile> values_file_;
  dhp::TrainingRun<Dev> run_;
};

}  // namespace examples
