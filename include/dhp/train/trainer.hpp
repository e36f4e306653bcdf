// Trainer runs training steps and evaluation passes of any Trainable on any mesh. A step consists of forward and
// backward with the sum over replicas, losses, norms, one decision for all ranks (apply, skip, stop), clipping,
// optimizer, running statistics. All this runs on the device: the host issues a step and reads the outcome later.
#pragma once

#include <dhp/comm/gather.hpp>
#include <dhp/core/trace.hpp>
#include <dhp/data/batching.hpp>
#include <dhp/optim/optimizer.hpp>
#include <dhp/train/not_finite.hpp>
#include <dhp/train/predictions.hpp>
#include <dhp/train/run_state.hpp>
#include <dhp/train/step_recorder.hpp>
#include <dhp/train/step_report.hpp>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace dhp {

template <class Dev, Trainable<Dev> M>
class Trainer {
 public:
  /// Keeps references. With a tensor axis, makes the device deterministic: it no longer chooses algorithms by timing.
  Trainer(Dev& dev, M& model, Mesh<Dev>& mesh, Optimizer<Dev>& optimizer, Norms<Dev> norms,
          TrainerOptions options)
      : dev_(dev),
        model_(model),
        mesh_(mesh),
        optimizer_(optimizer),
        norms_(std::move(norms)),
        options_(options),
        loss_scale_(options.loss_scale.value_or(default_loss_scale(model.store()))),
        state_(make_step_state(dev, {.loss_scale = loss_scale_.initial})),
        series_(dev, DType::i32, {1}),
        counts_(dev, DType::i64, {std::ssize(model.term_names())}),
        request_(dev, DType::f64, {4}) {
    detail::make_copies_agree(dev, mesh);
    check(options.clip >= 0 && options.spike >= 0, "clip and spike are limits of norms, or 0, got ",
          options.clip, " and ", options.spike);
    detail::check_loss_scale(loss_scale_);
    check(
        mesh.shape().context == 1 || replicas() == nullptr || model_.store().is_sharded(),
        "ranks of a context axis have rows of the same samples and take each step together: choose "
        "a reducer that is not late");
    check(norms_.replicas() == replicas(),
          "these replicas exchange more than sums of gradients, which Norms has to know: give "
          "Norms the replicas of DataParallel");
  }

  /// Runs one step over this replica's micro-batches. Collective over the mesh. Throws NotFinite if the loss or a
  /// gradient is not finite. A dynamic loss scale above 1 shrinks instead, and the step is skipped.
  StepReport step(const StepBatches<Dev>& mine) { return finish(start(mine)); }

  /// Issues one step without waiting for it.
  [[nodiscard]] StepTicket<Dev> start(const StepBatches<Dev>& mine) {
    check(counts_.count() > 0, "the model's loss has no terms, so it cannot be trained");
    check(mine.micro_batches > 0, "a step of no micro-batches trains nothing");
    check(mesh_.shape().data > 1 || std::ssize(mine.batches) == mine.micro_batches, "a step of ",
          mine.micro_batches, " micro-batches got ", mine.batches.size(),
          "; a single replica takes all");
    StepTicket<Dev> ticket{.step = now_.step + 1, .from = position()};
    ticket.learning_rate = options_.learning_rate.at(ticket.step);
    ticket.mine = mine.share();
    put(counts_.mut(), detail::counts_of<Dev>(mine.batches, model_.term_names()));
    put(request_.mut(), detail::request_of(dev_, mesh_, stop_requested_, mine.batches,
                                           !std::exchange(compared_, true), ticket.learning_rate));
    detail::write_learning_rate<Dev>(dev_, ticket.learning_rate, state_.mut());
    if (update_barrier_)
      interrupted_.emplace(
          Interrupted{ticket.step, ticket.learning_rate, mine.share(), clone(dev_, state_.view())});
    const auto losses =
        recorder_.run(dev_, step_of(ticket), recording(ticket.step, mine.same_shapes),
                      [&](const Step<Dev>& now) { return run(now); });
    ticket.replayed = recorder_.replayed();
    ticket.losses = dev_.start_copy_to_host(losses.view().bytes(), losses.size_bytes());
    ticket.state = dev_.start_copy_to_host(state_.view().bytes(), state_.size_bytes());
    count_step(mine.samples);
    interrupted_.reset();
    return ticket;
  }

  /// Waits for a step and returns its outcome. Tickets must be finished in the order of their steps.
  StepReport finish(const StepTicket<Dev>& ticket) {
    const auto names = model_.term_names();
    auto losses = ticket.losses.template wait<double>();
    const auto request = losses.end() - static_cast<std::ptrdiff_t>(names.size() * loss_fields);
    const bool stop_requested = *request > 0;
    detail::check_request(std::span<const double>(request, 4), mesh_.shape(), ticket.step,
                          ticket.mine.micro_batches);
    losses.erase(request, losses.end());
    detail::check_counts<Dev>(losses, names, ticket.mine.batches);
    const auto loss = detail::sum_losses(losses, names.size());
    const auto state = detail::step_state_of(ticket.state.template wait<std::byte>());
    if (state.decision == StepDecision::stop) stop(ticket, loss, state.norm);
    return {.step = ticket.step,
            .loss = loss.value(),
            .terms = loss.terms,
            .gradient_norm = state.norm,
            .learning_rate = ticket.learning_rate,
            .loss_scale = state.used_loss_scale,
            .skipped = !state.applies(),
            .spike = !state.applies() && state.spikes > 0,
            .usual_norm = state.usual_norm,
            .stop_requested = stop_requested,
            .replayed = ticket.replayed};
  }

  /// Returns the loss over a held-out set, the same in any layout. mine: any number of micro-batches of this replica,
  /// with ZeRO 3 at most an equal share, rounded up. Collective over the mesh.
  GlobalLoss evaluate(const StepBatches<Dev>& mine) {
    const auto scope = dev_.scope("evaluation");
    const auto step = outside_training(mine);
    const auto names = model_.term_names();
    const auto gathered = detail::gather_losses<Dev>(dev_, mesh_, model_.evaluate(dev_, step),
                                                     mine.batches, mine.micro_batches);
    mesh_.world().synchronize(dev_);
    const auto losses = gathered.template to_host<double>(dev_);
    detail::check_counts<Dev>(losses, names, mine.batches);
    return detail::sum_losses(losses, names.size());
  }

  /// Returns the loss's predictions, without dropout. Rank 0 gets one array for each micro-batch of all replicas, in
  /// the order of their indices; other ranks get none. Collective over the mesh. The tensor axis may change last
  /// digits. The other axes change nothing: samples stay whole, and ranks of a context axis take different
  /// micro-batches.
  [[nodiscard]] std::vector<HostArray> predict(
      const StepBatches<Dev>& mine) requires detail::Predicts<M, Dev> {
    const auto scope = dev_.scope("prediction");
    StepBatches<Dev> own{{}, mine.micro_batches, mine.samples, mine.same_shapes};
    const auto turns = detail::as_size(mesh_.shape().context);
    for (auto at = detail::as_size(mesh_.context_index()); at < mine.batches.size(); at += turns)
      own.batches.push_back(mine.batches[at].share());
    return detail::gather_predictions<Dev>(dev_, mesh_, model_.predict(dev_, outside_training(own)),
                                           own.batches, own.micro_batches,
                                           model_.store().options().compute);
  }

  /// Asks all ranks to stop; the report of a later step tells every rank. Any thread may call it.
  void request_stop() { stop_requested_ = true; }
  /// Returns whether any rank was asked to stop; call it between two steps. Collective; the same on all ranks.
  [[nodiscard]] bool agree_to_stop() {
    const auto all = gather(dev_, mesh_.world(), {stop_requested_ ? 1.0 : 0.0});
    return std::find(all.begin(), all.end(), 1.0) != all.end();
  }
  /// Adds a function that each step calls after this rank's last collective for gradients and norms, and before its
  /// first write to weights, optimizer state or running statistics: a save may still read these. The rank then updates
  /// alone; afterwards replicas may exchange weights (Replicas::updated). On a GPU, the collectives are issued but not
  /// complete. Replayed steps do not call it.
  void before_update(std::function<void()> call) { before_update_.push_back(std::move(call)); }
  void set_hook(std::unique_ptr<StepHook<Dev>> hook) { hook_ = std::move(hook); }

  /// Prepares for runs that continue after losing ranks. barrier() returns on no rank before all training ranks have
  /// entered it. Each step calls it between its last collective and its update, when the device has all sums. If
  /// start() throws because a rank was lost, then either no rank has updated, or all remaining ranks still can.
  /// finish_interrupted() brings all of them to the same step.
  void set_update_barrier(std::function<void()> barrier) {
    check(replicas() == nullptr || model_.store().is_sharded(),
          "a run can go on with other ranks only where all replicas take each step together: "
          "choose a reducer that is not late");
    update_barrier_ = std::move(barrier);
  }
  /// Returns the number of steps whose updates are in this rank's state.
  [[nodiscard]] std::int64_t steps_updated() const {
    return now_.step + (interrupted_ && interrupted_->updated ? 1 : 0);
  }
  /// Returns whether start() has thrown since the last finish_interrupted().
  [[nodiscard]] bool is_interrupted() const { return interrupted_.has_value(); }
  /// Completes or undoes the step in which start() has thrown, so that the state is then after `steps` steps. Not
  /// collective: does not gather weights that replicas shard (ZeRO). Returns the step's report if it is completed.
  std::optional<StepReport> finish_interrupted(std::int64_t steps) {
    if (!interrupted_) return std::nullopt;
    const auto& known = *interrupted_;
    const bool does = known.updated || steps == known.number;
    check(steps == (does ? known.number : now_.step) && (known.updated || !does || known.ready),
          "the interrupted step ", known.number, " cannot become the state after ", steps,
          " steps");
    auto step = std::move(*interrupted_);
    interrupted_.reset();
    if (!does) {
      detail::copy(dev_, step.state, state_.mut());
      return std::nullopt;
    }
    if (!step.updated) update(step.batches.micro_batches);
    const auto from = position();
    count_step(step.batches.samples);
    const auto copy = [&](ConstView<Dev> of) {
      return dev_.start_copy_to_host(of.bytes(), of.size_bytes());
    };
    return finish({.step = step.number,
                   .from = from,
                   .learning_rate = step.learning_rate,
                   .losses = copy(step.losses.view()),
                   .state = copy(state_.view()),
                   .mine = std::move(step.batches)});
  }

  /// Returns whether steps may be recorded if the device can.
  [[nodiscard]] bool may_record() {
    return options_.record && !update_barrier_ && replicas() == nullptr;
  }
  /// Returns DataParallel's replicas, or null.
  [[nodiscard]] Replicas<Dev>* replicas() {
    if constexpr (requires { model_.replicas(); }) return model_.replicas();
    else return nullptr;
  }

  /// Returns the number of started steps; the last ones may not be finished. A failed step does not count.
  [[nodiscard]] std::int64_t steps_started() const { return now_.step; }
  [[nodiscard]] Optimizer<Dev>& optimizer() { return optimizer_; }
  /// Returns the position in the data at which the next step begins.
  [[nodiscard]] DataPosition position() const { return {now_.step, now_.samples}; }
  /// Waits for all steps and returns the state after them.
  [[nodiscard]] const RunState& state() {
    now_.device = read_step_state<Dev>(dev_, state_);
    if (!loss_scale_.dynamic) now_.device.loss_scale = now_.device.good_steps = 0;
    return now_;
  }
  /// The part of the state that the program fills in.
  [[nodiscard]] BestMeasure& best() { return now_.best; }
  /// Continues after a state, such as a loaded one. Takes its loss scale only if this run's is dynamic. Reducers keep
  /// nothing of the step before, which may have failed.
  void resume_after(const RunState& state) {
    now_ = state;
    failed_step_ = 0;
    auto device = state.device;
    if (device.loss_scale <= 0 || !loss_scale_.dynamic)
      device.loss_scale = loss_scale_.initial, device.good_steps = 0;
    device.decision = StepDecision::skip, device.used_loss_scale = device.loss_scale;
    detail::write_step_state<Dev>(dev_, device, state_.mut());
  }

 private:
  void count_step(std::int64_t samples) {
    ++now_.step;
    if (now_.samples >= 0) now_.samples += samples;
  }
  [[nodiscard]] static LossScaleOptions default_loss_scale(ParameterStore<Dev>& store) {
    if (store.options().compute != DType::f16) return {};
    return {.dynamic = true, .initial = 65536};
  }
  [[nodiscard]] std::uint64_t seed() { return model_.store().options().seed; }
  [[nodiscard]] detail::Recording recording(std::int64_t step, bool same_shapes) {
    if (!may_record() || is_hooked(step)) return detail::Recording::none;
    if (mesh_.world().size() == 1) return detail::Recording::where_alike;
    return same_shapes ? detail::Recording::promised : detail::Recording::none;
  }
  /// Issues the work of a step on the device; the host does not wait.
  Tensor<Dev> run(const Step<Dev>& step) {
    const auto scope = dev_.scope("step", step.context.step, TraceKind::step);
    auto& store = model_.store();
    auto losses = forward_backward(step);
    const auto squares = norms_.gradient_squares(dev_, store);
    decide_step<Dev>(dev_,
                     {.clip = options_.clip,
                      .loss_scale = loss_scale_,
                      .spike = options_.spike,
                      .skip = replicas() != nullptr && replicas()->skips()},
                     losses.view().slice(0, step.micro_batches), squares.view(), state_.mut());
    {
      const auto norms = dev_.scope("optimizer norms");
      optimizer_.prepare(dev_, squares.view(), state_.view());
    }
    for (const auto& call : before_update_) call();
    if (update_barrier_) {
      mesh_.world().synchronize(dev_);
      interrupted_->losses = losses.share();
      interrupted_->ready = true;
      update_barrier_();
    }
    update(step.micro_batches);
    if (update_barrier_) interrupted_->updated = true;
    if (replicas() != nullptr) replicas()->updated(dev_);
    return losses;
  }
  [[nodiscard]] bool is_hooked(std::int64_t step) const {
    return hook_ != nullptr && hook_->takes_part(step);
  }
  /// Computes the gradients of the global batch, and returns the losses of all its micro-batches.
  Tensor<Dev> forward_backward(const Step<Dev>& step) {
    const auto pass = [&](const Step<Dev>& over) {
      auto& store = model_.store();
      store.begin_gradients(dev_);
      auto losses = model_.forward_backward(dev_, over);
      store.complete_gradients(dev_, {0, store.size()});  // for ranges that never became ready
      return losses;
    };
    auto mine = is_hooked(step.context.step) ? hook_->run(step, pass) : pass(step);
    return detail::gather_losses<Dev>(dev_, mesh_, std::move(mine), step.batches,
                                      step.micro_batches, request_.view());
  }
  /// Updates weights and running statistics. Not collective.
  void update(std::int64_t micro_batches) {
    const auto scope = dev_.scope("optimizer");
    optimizer_.apply(dev_, state_.view());
    model_.store().update_running_statistics(dev_, options_.batch_norm_momentum, micro_batches,
                                             state_.view());
  }
  [[nodiscard]] Step<Dev> outside_training(const StepBatches<Dev>& mine) {
    return {.batches = mine.batches,
            .micro_batches = mine.micro_batches,
            .context = {.seed = seed(), .same_shapes = mine.same_shapes}};
  }
  /// Returns the step of a ticket; copies the series of its random numbers to the device.
  Step<Dev> step_of(const StepTicket<Dev>& ticket) {
    const StepContext context{
        .seed = seed(),
        .step = static_cast<std::uint32_t>(ticket.step),
        .series_at = reinterpret_cast<const std::uint32_t*>(series_.view().bytes()),
        .same_shapes = ticket.mine.same_shapes};
    put(series_.mut(), std::vector{static_cast<std::int32_t>(context.random(0).series)});
    return {.batches = ticket.mine.batches,
            .micro_batches = ticket.mine.micro_batches,
            .context = context,
            .counts = counts_.view(),
            .state = state_.view()};
  }
  template <class T>
  void put(View<Dev> to, const std::vector<T>& values) {
    check(to.size_bytes() == values.size() * sizeof(T), "a step's ", values.size(),
          " values do not fit the tensor ", to.shape());
    dev_.copy_from_host(to.bytes(), reinterpret_cast<const std::byte*>(values.data()),
                        to.size_bytes());
  }

  /// Throws NotFinite on all ranks. All repeat their micro-batches to the end, since layers may wait for each other,
  /// and check every layer, to name the first with a non-finite result. No weight has changed yet.
  [[noreturn]] void stop(const StepTicket<Dev>& ticket, const GlobalLoss& loss, double norm) {
    if (failed_step_ == 0 || failed_step_ == ticket.step)  // the state stays as before the step
      now_.step = ticket.from.steps_done, now_.samples = ticket.from.samples;
    check(failed_step_ == 0, "step ", failed_step_, " has failed, and no later step changes ",
          "anything: resume from a checkpoint, or begin a new run");
    failed_step_ = ticket.step;
    const bool loss_is_bad = loss.first_bad_micro_batch >= 0;
    const auto what = concat(
        "step ", ticket.step, ": ",
        loss_is_bad ? concat("the loss is not finite (", loss.value(), ")")
                    : concat("the loss is finite but the gradient is not (norm ", norm, ")"));
    auto alone = step_of(ticket);
    alone.counts = {};
    detail::FirstNonFinite first;
    detail::NonFiniteResult own;
    const std::span batches(ticket.mine.batches);
    const auto most = model_.store().replica().share_of(ticket.mine.micro_batches);
    for (std::int64_t at = 0; at < std::max(most, std::ssize(batches)); ++at) {
      const bool has = at < std::ssize(batches);
      alone.batches = batches.subspan(has ? detail::as_size(at) : 0, has ? 1 : 0);
      const auto index = has ? alone.batches[0].index : -1;
      const bool is_suspect = !loss_is_bad || index == loss.first_bad_micro_batch;
      alone.context.first_nonfinite = is_suspect ? &first : nullptr;
      model_.replay(dev_, alone);
      if (own.sentence.empty()) own = detail::NonFiniteResult::of(first, index);
    }
    const auto cause = detail::earliest_of(dev_, mesh_.world(), std::move(own));
    if (!cause.empty()) throw NotFinite(concat(what, "; ", cause));
    throw NotFinite(
        concat(what, ", but ",
               detail::cause_outside_layers(loss_is_bad, model_.store().options().deterministic)));
  }

  /// A step that start() has begun but not completed; it remains if start() throws.
  struct Interrupted {
    std::int64_t number;
    double learning_rate;
    StepBatches<Dev> batches;
    Tensor<Dev> state;  // StepState before the step
    Tensor<Dev> losses{};
    bool ready = false;    // all collectives of the step are done, and their results are valid
    bool updated = false;  // the update is also done
  };

  Dev& dev_;
  M& model_;
  Mesh<Dev>& mesh_;
  Optimizer<Dev>& optimizer_;
  Norms<Dev> norms_;
  TrainerOptions options_;
  LossScaleOptions loss_scale_;
  Tensor<Dev> state_;    // StepState
  Tensor<Dev> series_;   // i32 [1]: the bits of RandomStream::series
  Tensor<Dev> counts_;   // i64 [terms], counts of this replica's micro-batches
  Tensor<Dev> request_;  // f64 [4], see request_of()
  std::atomic<bool> stop_requested_{false};
  bool compared_ = false;
  detail::StepRecorder<Dev> recorder_;
  std::vector<std::function<void()>> before_update_;
  std::function<void()> update_barrier_;
  std::unique_ptr<StepHook<Dev>> hook_;
  std::optional<Interrupted> interrupted_;
  RunState now_;                  // `device` is stale until state() reads it
  std::int64_t failed_step_ = 0;  // 0: none
};

}  // namespace dhp
