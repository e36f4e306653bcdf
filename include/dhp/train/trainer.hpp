// Trainer: one step of training, and one pass of evaluation, for any Trainable on any mesh. The order of a
// step: forward and backward with the reduction over replicas inside, losses, norms, the verdict that all
// ranks share (step, skip, stop), clipping, optimizer, running statistics. All of it happens on the device:
// the host issues a step and learns what came of it when it asks.
#pragma once

#include <dhp/nn/norms.hpp>
#include <dhp/nn/running_statistics.hpp>
#include <dhp/optim/learning_rate.hpp>
#include <dhp/optim/optimizer.hpp>
#include <dhp/train/global_loss.hpp>
#include <dhp/train/step_recorder.hpp>

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
  /// Where the device can: a step of the shapes of the step before it is recorded, and run again as one
  /// piece as long as shapes stay. Layers may then copy nothing from or to the host. Several ranks record the
  /// same steps, those that start() is promised something of; each is a process with a GPU of its own, since graphs
  /// of several GPUs that one process launches may wait for each other.
  bool record = false;
};

struct StepReport {
  std::int64_t step = 0;  ///< counted from 1
  double loss = 0;
  std::vector<LossTerm> terms;
  double gradient_norm = 0;  ///< over the whole model, before clipping
  double learning_rate = 0;
  double loss_scale = 1;
  bool skipped = false;   ///< gradients were not finite under a dynamic loss scale
  bool recorded = false;  ///< run as one piece that was recorded before
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

/// A step under way: what is on its way to the host, and what is needed if it turns out to have failed.
template <class Dev>
struct StepTicket {
  std::int64_t step = 0;  ///< counted from 1
  double learning_rate = 0;
  bool recorded = false;
  HostCopy losses;
  HostCopy state;
  std::vector<MicroBatch<Dev>> batches;
};

template <class Dev, Trainable<Dev> M>
class Trainer {
 public:
  /// Keeps references: device, model, mesh and optimizer outlive it. Where the mesh has a tensor axis, a device that
  /// chooses algorithms by time becomes deterministic.
  Trainer(Dev& dev, M& model, Mesh<Dev>& mesh, Optimizer<Dev>& optimizer, Norms<Dev> norms,
          TrainerOptions options)
      : dev_(dev),
        model_(model),
        mesh_(mesh),
        optimizer_(optimizer),
        norms_(std::move(norms)),
        options_(options),
        state_(make_step_state(dev, {.loss_scale = options.loss_scale.initial})),
        number_(dev, DType::i32, {1}),
        counts_(dev, DType::i64, {static_cast<std::int64_t>(model.term_names().size())}) {
    make_copies_agree(dev, mesh);
  }

  /// One step over this replica's micro-batches, from start to end. Collective over the mesh. Throws where
  /// the loss or a gradient is not finite and there is no dynamic loss scale to blame.
  StepReport step(std::span<const MicroBatch<Dev>> batches, std::int64_t micro_batches = -1) {
    return finish(start(batches, micro_batches));
  }

  /// Issues one step and does not wait for it. micro_batches: of all replicas; -1: they are asked, which
  /// makes the host wait. same_shapes: the caller promises that all micro-batches of all ranks have the same shapes,
  /// and are as many on each rank as in all other such steps; throws where they are seen not to be.
  [[nodiscard]] StepTicket<Dev> start(std::span<const MicroBatch<Dev>> batches,
                                      std::int64_t micro_batches = -1, bool same_shapes = false) {
    if (micro_batches < 0) micro_batches = count_micro_batches(dev_, mesh_, batches.size());
    StepTicket<Dev> ticket;
    ticket.step = steps_ + 1;
    ticket.learning_rate = options_.learning_rate.at(steps_);
    for (const auto& batch : batches) ticket.batches.push_back(batch.share());
    put(counts_.mut(), counts_of(batches, model_.term_names()));
    put(state_.mut().slice(0, 1), std::vector<double>{ticket.learning_rate});
    auto step = step_of(ticket);
    step.same_shapes = same_shapes;
    const auto losses =
        recorder_.run(dev_, step, micro_batches, recording(same_shapes),
                      [&](const Step<Dev>& now) { return run(now, micro_batches); });
    ticket.recorded = recorder_.recorded();
    ticket.losses = dev_.start_copy_to_host(losses.view().bytes(), losses.size_bytes());
    ticket.state = dev_.start_copy_to_host(state_.view().bytes(), state_.size_bytes());
    ++steps_;
    return ticket;
  }

  /// What came of a step; waits for it. Tickets are finished in the order of their steps.
  StepReport finish(const StepTicket<Dev>& ticket) {
    const auto loss = sum_losses(ticket.losses.template wait<double>(), model_.term_names().size());
    const auto state = state_of(ticket.state.template wait<double>());
    if (state.stopped != 0) stop(ticket, loss, state.norm);
    return {.step = ticket.step,
            .loss = loss.value(),
            .terms = loss.terms,
            .gradient_norm = state.norm,
            .learning_rate = ticket.learning_rate,
            .loss_scale = state.used_loss_scale,
            .skipped = state.go == 0,
            .recorded = ticket.recorded};
  }

  /// The terms over a held-out set, of which this replica was dealt `batches`; replicas may have unequal
  /// numbers of them. Collective over the mesh; the same at any layout.
  GlobalLoss evaluate(std::span<const MicroBatch<Dev>> batches) {
    const auto scope = dev_.scope("evaluation");
    const auto micro_batches = count_micro_batches(dev_, mesh_, batches.size());
    const Step<Dev> step{.batches = batches, .seed = options_.seed};
    const auto losses =
        gather_losses(dev_, mesh_, model_.evaluate(dev_, step), batches, micro_batches);
    return sum_losses(losses.template to_host<double>(dev_), model_.term_names().size());
  }

  /// Steps that were started.
  [[nodiscard]] std::int64_t steps_done() const { return steps_; }
  [[nodiscard]] Optimizer<Dev>& optimizer() { return optimizer_; }
  /// Waits for all steps.
  [[nodiscard]] TrainingProgress progress() {
    const auto state = read_step_state<Dev>(dev_, state_);
    return {.steps = steps_,
            .updates = static_cast<std::int64_t>(state.updates),
            .loss_scale = state.loss_scale,
            .good_steps = static_cast<int>(state.good_steps)};
  }
  /// Goes on where a loaded checkpoint was.
  void resume(const TrainingProgress& progress) {
    steps_ = progress.steps;
    StepState state{.updates = static_cast<double>(progress.updates),
                    .loss_scale = options_.loss_scale.initial};
    if (progress.loss_scale > 0 && options_.loss_scale.dynamic) {
      state.loss_scale = progress.loss_scale;
      state.good_steps = progress.good_steps;
    }
    const auto fields = fields_of(state);
    put(state_.mut(), std::vector<double>(fields.begin(), fields.end()));
  }

 private:
  [[nodiscard]] Recording recording(bool same_shapes) {
    if (!options_.record) return Recording::none;
    if (mesh_.world().size() == 1) return Recording::where_alike;
    return same_shapes ? Recording::promised : Recording::none;
  }
  /// Everything that happens on the device; the host waits for none of it to be done.
  Tensor<Dev> run(const Step<Dev>& step, std::int64_t micro_batches) {
    const auto scope = dev_.scope("step", step.number + std::int64_t{1}, TraceKind::step);
    auto& store = model_.store();
    store.zero_gradients(dev_);
    auto shared = step;
    shared.micro_batches = micro_batches;
    auto losses = gather_losses(dev_, mesh_, model_.forward_backward(dev_, shared, [](Range) {}),
                                step.batches, micro_batches);
    const auto squares = norms_.gradient_squares(dev_, store);
    judge_step(dev_, {.clip = options_.clip, .loss_scale = options_.loss_scale}, losses.view(),
               squares.view(), state_.mut());
    const auto update = dev_.scope("optimizer");
    optimizer_.step(dev_, squares.view(), state_.view());
    apply_running_statistics(dev_, store, options_.batch_norm_momentum, micro_batches,
                             state_.view());
    return losses;
  }
  /// The step of a ticket; its number is written to where kernels read it.
  Step<Dev> step_of(const StepTicket<Dev>& ticket) {
    const auto number = static_cast<std::uint32_t>(ticket.step - 1);
    put(number_.mut(), std::vector<std::int32_t>{static_cast<std::int32_t>(number)});
    return {.batches = ticket.batches,
            .seed = options_.seed,
            .number = number,
            .number_at = reinterpret_cast<const std::uint32_t*>(number_.view().bytes()),
            .counts = counts_.view(),
            .state = state_.view()};
  }
  template <class T>
  void put(View<Dev> to, const std::vector<T>& values) {
    check(to.size_bytes() == values.size() * sizeof(T), "a step has ", values.size(),
          " values for ", to.shape());
    dev_.copy_from_host(to.bytes(), reinterpret_cast<const std::byte*>(values.data()),
                        to.size_bytes());
  }

  /// Runs the micro-batches again with every layer checked, to name the first bad one. The step has changed
  /// no weight, nor has a later one. Replicas go side by side, since a layer may wait for the others'
  /// micro-batches.
  [[noreturn]] void stop(const StepTicket<Dev>& ticket, const GlobalLoss& loss, double norm) {
    const bool loss_is_bad = loss.first_bad_micro_batch >= 0;
    const auto what = concat(
        "step ", ticket.step, ": ",
        loss_is_bad ? concat("the loss is not finite (", loss.value(), ")")
                    : concat("the loss is finite but the gradient is not (norm ", norm, ")"));
    auto alone = step_of(ticket);
    alone.counts = {};  // each by itself
    for (std::size_t at = 0; at < ticket.batches.size(); ++at) {
      alone.batches = std::span(ticket.batches).subspan(at, 1);
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
  Tensor<Dev> state_;   // StepState
  Tensor<Dev> number_;  // i32 [1]: the bits of the step's number
  Tensor<Dev> counts_;  // i64 [terms] of this replica's micro-batches
  StepRecorder<Dev> recorder_;
  std::int64_t steps_ = 0;
};

}  // namespace dhp
