// Trainer: one step of training, and one pass of evaluation, for any Trainable on any mesh. The order of a
// step: forward and backward with the reduction over replicas inside, losses, norms, the verdict that all
// ranks share (step, skip, stop), clipping, optimizer, running statistics.
#pragma once

#include <dhp/nn/norms.hpp>
#include <dhp/nn/running_statistics.hpp>
#include <dhp/optim/clip.hpp>
#include <dhp/optim/learning_rate.hpp>
#include <dhp/optim/loss_scale.hpp>
#include <dhp/optim/optimizer.hpp>
#include <dhp/train/global_loss.hpp>

#include <cmath>
#include <span>
#include <string>
#include <vector>

namespace dhp {

struct TrainerOptions {
  LearningRate learning_rate{};
  double clip = 0;  ///< largest global gradient norm; 0: no clipping
  LossScaleOptions loss_scale{};
  double batch_norm_momentum = 0.1;
  std::uint64_t seed = 0;
};

struct StepReport {
  std::int64_t step = 0;  ///< counted from 1
  double loss = 0;
  std::vector<LossTerm> terms;
  double gradient_norm = 0;  ///< over the whole model, before clipping
  double learning_rate = 0;
  double loss_scale = 1;
  bool skipped = false;  ///< gradients were not finite under a dynamic loss scale
};

/// Where a run is: what a checkpoint holds beside tensors.
struct TrainingProgress {
  std::int64_t steps = 0;    ///< done, skipped ones included
  std::int64_t updates = 0;  ///< done by the optimizer
  double loss_scale = 0;     ///< 0: as the options say
  int good_steps = 0;        ///< since the loss scale changed
  /// What else a run that goes on should have in common with the one that was saved: name and value.
  std::vector<std::pair<std::string, std::int64_t>> settings{};
};

template <class Dev, Trainable<Dev> M>
class Trainer {
 public:
  /// Keeps references: device, model, mesh and optimizer outlive it.
  Trainer(Dev& dev, M& model, Mesh<Dev>& mesh, Optimizer<Dev>& optimizer, Norms<Dev> norms,
          TrainerOptions options)
      : dev_(dev),
        model_(model),
        mesh_(mesh),
        optimizer_(optimizer),
        norms_(std::move(norms)),
        options_(options),
        scale_(options.loss_scale) {}

  /// One step over this replica's micro-batches. Collective over the mesh. Throws where the loss or a
  /// gradient is not finite and there is no dynamic loss scale to blame.
  StepReport step(std::span<const MicroBatch<Dev>> batches) {
    auto& store = model_.store();
    store.zero_gradients(dev_);
    Step<Dev> step{.batches = batches,
                   .seed = options_.seed,
                   .number = static_cast<std::uint32_t>(steps_),
                   .loss_scale = scale_.value()};
    const auto losses = model_.forward_backward(dev_, step, [](Range) {});
    const auto loss = global_loss(dev_, mesh_, losses, static_cast<std::int64_t>(batches.size()),
                                  model_.term_names().size());
    const auto squares = norms_.gradient_squares(dev_, store);
    const double norm = std::sqrt(squares.total()) / scale_.value();

    StepReport report{.step = steps_ + 1,
                      .loss = loss.value(),
                      .terms = loss.terms,
                      .gradient_norm = norm,
                      .learning_rate = options_.learning_rate.at(steps_),
                      .loss_scale = scale_.value()};
    const double unscale = 1 / scale_.value();
    const bool finite = std::isfinite(norm) && loss.first_bad_micro_batch < 0;
    // At the least scale of all it is not the scale's fault.
    if (!finite && (!scale_.dynamic() || scale_.at_least())) stop(step, loss, norm);
    report.skipped = !scale_.update(finite);
    if (!report.skipped) {
      ++updates_;
      optimizer_.step(dev_, squares,
                      {.learning_rate = report.learning_rate,
                       .step = updates_,
                       .gradient_scale = unscale * clip_factor(norm, options_.clip)});
      apply_running_statistics(dev_, store, options_.batch_norm_momentum, loss.micro_batches);
    }
    ++steps_;
    return report;
  }

  /// The terms over a held-out set, of which this replica was dealt `batches`; replicas may have unequal
  /// numbers of them. Collective over the mesh; the same at any layout.
  GlobalLoss evaluate(std::span<const MicroBatch<Dev>> batches) {
    const Step<Dev> step{.batches = batches, .seed = options_.seed};
    return global_loss(dev_, mesh_, model_.evaluate(dev_, step),
                       static_cast<std::int64_t>(batches.size()), model_.term_names().size());
  }

  [[nodiscard]] std::int64_t steps_done() const { return steps_; }
  [[nodiscard]] Optimizer<Dev>& optimizer() { return optimizer_; }
  [[nodiscard]] TrainingProgress progress() const {
    return {.steps = steps_,
            .updates = updates_,
            .loss_scale = scale_.value(),
            .good_steps = scale_.good_steps()};
  }
  /// Goes on where a loaded checkpoint was.
  void resume(const TrainingProgress& progress) {
    steps_ = progress.steps;
    updates_ = progress.updates;
    if (progress.loss_scale > 0 && scale_.dynamic())
      scale_.restore(progress.loss_scale, progress.good_steps);
  }

 private:
  /// Runs the micro-batches again with every layer checked, to name the first bad one. Replicas go side
  /// by side, since a layer may wait for the others' micro-batches.
  [[noreturn]] void stop(Step<Dev> step, const GlobalLoss& loss, double norm) {
    const bool loss_is_bad = loss.first_bad_micro_batch >= 0;
    const auto what = concat(
        "step ", step.number + 1, ": ",
        loss_is_bad ? concat("the loss is not finite (", loss.value(), ")")
                    : concat("the loss is finite but the gradient is not (norm ", norm, ")"));
    for (std::size_t at = 0; at < step.batches.size(); ++at) {
      auto alone = step;
      alone.batches = step.batches.subspan(at, 1);
      alone.find_nonfinite = !loss_is_bad || alone.batches[0].index == loss.first_bad_micro_batch;
      try {
        model_.replay(dev_, alone);
      } catch (const NotFinite& error) {
        fail(what, "; ", error.sentence(), " (micro-batch ", alone.batches[0].index, ")");
      }
    }
    mesh_.world().barrier();  // a rank that names the layer ends the others here
    if (loss_is_bad)
      fail(what,
           " behind a last layer whose output is: the loss itself overflowed; a lower learning "
           "rate may help");
    fail(what, ", though every layer's output and input gradient is: ",
         model_.store().options().order_free
             ? "a weight gradient left the range of order-free sums (2^18); clip, lower the "
               "rate, or sum in floating point"
             : "a weight gradient overflowed; a lower learning rate may help");
  }

  Dev& dev_;
  M& model_;
  Mesh<Dev>& mesh_;
  Optimizer<Dev>& optimizer_;
  Norms<Dev> norms_;
  TrainerOptions options_;
  LossScale scale_;
  std::int64_t steps_ = 0;
  std::int64_t updates_ = 0;
};

}  // namespace dhp
