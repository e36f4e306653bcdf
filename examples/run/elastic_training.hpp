// ElasticTraining: a rank's training in an elastic job. Each generation rebuilds it for the layout and takes the state
// from the ranks that have it.
#pragma once

#include <dhp/comm/elastic/run_elastic.hpp>
#include <dhp/train/state_exchange.hpp>

#include "../options/agreement.hpp"
#include "layout_planner.hpp"
#include "program.hpp"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace examples {

class ElasticTraining : dhp::detail::NonCopyable {
 public:
  using Rank = dhp::GenerationRank<Dev>;

  /// Keeps references to its arguments.
  ElasticTraining(Dev& dev, const TrainingSetup& setup, dhp::Deadlines& deadlines,
                  Stopping& stopping)
      : dev_(dev),
        setup_(setup),
        deadlines_(deadlines),
        stopping_(stopping),
        common_{options_in_common(setup.options), data_in_common(setup)} {
    const auto& options = setup.options;
    elastic_ = {.tensor = options.layout.tensor,
                .pipeline = options.layout.pipeline,
                .layouts = *options.elastic,
                .gives_up = [this] { return gives_up(); }};
    if (setup.waits_for_replicas)
      elastic_.layouts.allows = [&setup](const auto& layout) {
        return gives_work_to_all(setup, layout);
      };
    if (!options.elastic_axes) return;
    layouts_.emplace(setup, memory_limit(dev, options).bytes);
    elastic_.layouts.step_time = [this](const auto& layout) { return layouts_->step_time(layout); };
  }

  /// The body that run_elastic runs in each generation.
  dhp::GenerationEnd run(Rank& rank) {
    finish_all(dev_);
    // A member that missed a generation has an old state. It drops this state before the generation can end, since the
    // next one would take it for the newest.
    if (rank.report.steps < 0) built_.clear();
    try {
      return run_in(rank);
    } catch (const dhp::Aborted&) {
      if (!built_.empty() && !built_.back()->program.has_state()) built_.clear();
      rank.report.steps =
          built_.empty() ? -1 : built_.back()->program.training().trainer().steps_updated();
      since_ = Clock::now();
      throw;
    }
  }
  /// Returns the options of this training's job; they refer to this object.
  [[nodiscard]] const dhp::ElasticOptions& elastic() const { return elastic_; }
  /// Returns whether it was asked to stop. Other ranks or the last checkpoint then have the state.
  [[nodiscard]] bool stopped() const { return stopped_; }

 private:
  using Clock = std::chrono::steady_clock;

  /// A training run in the layout of one generation.
  struct Built {
    Built(Dev& dev, dhp::Comm<Dev> ranks, TrainingSetup changed, dhp::Deadlines& deadlines,
          Stopping& stopping, MemoryPlanner* memory, ElasticHooks asked)
        : setup(std::move(changed)),
          hooks(std::move(asked)),
          program(dev, std::move(ranks), setup, memory, &deadlines, stopping, &hooks) {}
    TrainingSetup setup;
    ElasticHooks hooks;
    Program program;
  };

  /// Returns whether a newcomer was asked to stop.
  [[nodiscard]] bool gives_up() {
    // No signal ends this process immediately now: other ranks may wait.
    stopping_.begin_steps(setup_.options.grace_s);
    return stopped_ = stopping_.asked();
  }
  dhp::GenerationEnd run_in(Rank& rank) {
    deadlines_.enter(dhp::Section::start);  // loading a checkpoint may take longer than a step
    // A newcomer may find a checkpoint of this job in --resume, but nobody loads it.
    if (rank.job_has_begun() && !setup_.options.resume.empty())
      common_[0] = without(common_[0], "--load");
    for (const auto& common : common_)
      check_same(dev_, rank.world, common, true, rank.report.steps >= 0);
    if (layouts_) layouts_->agree_on_limit(dev_, rank.world);
    auto ranks = rank.training_ranks();
    const auto steps = rank.now.steps;
    for (const auto& built : built_) repeats_ |= built->program.finish_interrupted(steps);
    if (!built_.empty()) rank.report.steps = steps;

    std::unique_ptr<Built> next;
    if (!rank.is_spare()) next = build(rank, std::move(ranks));
    const double built_s = seconds();
    if (steps >= 0 && !take_state(rank, next.get())) {
      rank.report.steps = -1;
      built_.clear();
      return dhp::GenerationEnd::changed;
    }
    if (steps >= 0) {  // every rank has received its state
      rank.world.synchronize(dev_);
      rank.world.barrier();
    }
    if (next) built_.push_back(std::move(next));
    if (steps >= 0) rank.world.barrier();  // before any rank forgets state that others need
    if (built_.size() > 1) built_.erase(built_.begin(), built_.end() - 1);
    dev_.synchronize();
    dev_.memory().trim();  // another layout needs other sizes
    if (rank.is_spare()) {
      built_.clear();
      lost_.clear();  // the other ranks have reported it
      repeats_ = false;
      rank.report.steps = -1;
      auto end = dhp::GenerationEnd::changed;
      deadlines_.enter(dhp::Section::rest);  // the limits of a step are those of the other ranks
      if (!rank.report.leaving) end = rank.rest([&] { return stopping_.asked(); });
      stopped_ = rank.report.leaving || end == dhp::GenerationEnd::stopped;
      return end;
    }
    auto& program = built_.back()->program;
    report_generation(rank, program, built_s);
    // Plans for one rank less in advance, on the rank that proposes the next generation. Others wait in the first step.
    if (rank.now.number == 1 && rank.world.rank() == 0)
      (void)dhp::next_layout(rank.world.size() - 1, rank.now.layout, elastic_.layouts);
    const auto end = program.run();
    if (end != RunEnd::changes) {
      built_.clear();  // ends its communicators while all ranks are here
      stopped_ = end == RunEnd::stopped;
      return stopped_ ? dhp::GenerationEnd::stopped : dhp::GenerationEnd::finished;
    }
    rank.report.steps = program.training().trainer().steps_started();
    since_ = Clock::now();
    return dhp::GenerationEnd::changed;
  }

  [[nodiscard]] std::unique_ptr<Built> build(Rank& rank, dhp::Comm<Dev> ranks) {
    auto setup = setup_;
    auto& options = setup.options;
    options.layout = rank.now.layout;
    const bool has_state = rank.now.steps >= 0, first = !rank.job_has_begun();
    // If the state was lost with its ranks, the newest checkpoint of this run has most of it. Before the run has begun,
    // checkpoints there are another run's.
    if (!has_state && !first && !options.save.empty())
      if (const auto saved = dhp::newest_checkpoint(options.save)) {
        const auto state = dhp::detail::run_state_of(saved->second.about, saved->first);
        options.load = options.save;
        options.from = {state.step, state.samples};
      }
    if (first) memory_.emplace(setup);
    return std::make_unique<Built>(
        dev_, std::move(ranks), std::move(setup), deadlines_, stopping_,
        first ? &*memory_ : nullptr,
        ElasticHooks{.first = first,
                     .has_state = has_state,
                     .begin = [&rank] { rank.begin_job(); },
                     .change_wanted = [&rank] { return rank.change_wanted(); },
                     .job_goes_on = [this, &rank] { return job_goes_on(rank); },
                     .check_newest = rank.newest_check()});
  }

  /// Waits until the device has no work of the last generation, which may have stopped in the middle of a step.
  static void finish_all(auto& dev) {
    if constexpr (requires { dev.finish_copies_beside(); }) dev.finish_copies_beside();
    dev.synchronize();
  }
  /// Returns the state that this rank holds; of weights that replicas shard, only its own shards and redundant copies.
  [[nodiscard]] static std::vector<dhp::HeldPiece<Dev>> own_state(dhp::TrainingRun<Dev>& run) {
    return dhp::state_pieces(run.stage().store(), run.optimizer(), true);
  }
  /// The position of a rank in training; step -1 if the rank holds no state.
  struct Position {
    dhp::RunState state{.step = -1};
    Measures last_step{};     ///< that step's line of metrics, for the rank that writes next
    dhp::MeshShape layout{};  ///< layout of the state's generation
    bool repeats = false;     ///< the following step had begun, was forgotten and is repeated
    void pass(dhp::detail::Fields& fields) { fields(state, last_step, layout, repeats); }
  };
  /// Collective. Brings the state to `next` (null: a spare) from the ranks that hold it; false if a part is lost.
  [[nodiscard]] bool take_state(Rank& rank, Built* next) {
    std::vector<dhp::HeldPiece<Dev>> held, needed;
    Position position;
    for (const auto& built : built_) {
      for (auto& piece : own_state(built->program.training())) held.push_back(std::move(piece));
      auto& run = built->program.training();
      position = {run.trainer().state(), built->program.last_step(), run.mesh().shape()};
    }
    if (next != nullptr) needed = own_state(next->program.training());
    const auto exchanged = dhp::StateExchange<Dev>::run(dev_, rank.world, held, needed);
    moved_bytes_ = exchanged.moved_bytes;
    position.repeats = repeats_;
    for (const auto& other : dhp::detail::gather_values(dev_, rank.world, position)) {
      repeats_ |= other.repeats;
      if (other.state.step > position.state.step) position = other;
    }
    before_ = position.layout;
    if (!exchanged.missing.empty()) {
      lost_ =
          dhp::concat("; no rank has ", *exchanged.missing.begin(), " after step ", rank.now.steps,
                      " any more: the steps since the newest checkpoint are lost");
      return false;
    }
    if (next != nullptr) next->program.resume_after(position.state, position.last_step);
    return true;
  }

  /// Returns whether the remaining ranks are enough; if not, no rank leaves before the end. Collective over the
  /// training ranks.
  [[nodiscard]] bool job_goes_on(Rank& rank) {
    auto& world = built_.back()->program.training().mesh().world();
    const bool leaving = stopping_.asked();
    int staying = rank.world.size();
    bool store_stays = true;
    for (const auto& [leaves, has_store] : dhp::detail::gather_values(
             dev_, world,
             std::pair(leaving, rank.is_to_stop() || (leaving && rank.holds_store())))) {
      staying -= leaves ? 1 : 0;
      store_stays = store_stays && !has_store;
    }
    // Spares may have been told to leave, too.
    const bool some_train_on = rank.world.size() - staying < rank.now.layout.size();
    const bool goes_on = store_stays && some_train_on &&
                         dhp::next_layout(staying, rank.now.layout, elastic_.layouts);
    rank.report.leaving = goes_on && leaving;
    return goes_on;
  }

  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(Clock::now() - since_).count();
  }
  void report_generation(const Rank& rank, Program& program, double built_s) {
    const auto moved_bytes = std::exchange(moved_bytes_, 0);
    const bool repeats = std::exchange(repeats_, false) && rank.now.steps >= 0;
    if (rank.now.number == 1) return;
    const auto& from = before_.value_or(rank.now.layout);
    program.log(dhp::concat(
        "generation ", rank.now.number, ": ", rank.now.layout,
        from == rank.now.layout
            ? ""
            : dhp::concat(" instead of ", from.data, "x", from.tensor, "x", from.pipeline),
        rank.now.steps < 0 ? " without a state" : dhp::concat(" after step ", rank.now.steps),
        rank.ended.empty() ? "" : "; ", rank.ended, std::exchange(lost_, {}),
        repeats ? dhp::concat("; step ", rank.now.steps + 1, " is done again") : "",
        "; agreed after ", short_number(rank.agreed_s), " s, connected in ",
        short_number(rank.connected_s), " s, built after ", short_number(built_s),
        " s, has its state after ", short_number(seconds()), " s, ", bytes_text(moved_bytes),
        " of state taken"));
  }

  Dev& dev_;
  const TrainingSetup& setup_;
  dhp::Deadlines& deadlines_;
  Stopping& stopping_;
  std::vector<Common> common_;  // facts that must be the same on all members
  dhp::ElasticOptions elastic_;
  std::optional<LayoutPlanner> layouts_;  // set if all axes may change
  std::optional<MemoryPlanner> memory_;   // plans the first generation
  bool stopped_ = false;
  std::string lost_;
  std::size_t moved_bytes_ = 0;           // bytes moved for the generation that begins
  bool repeats_ = false;                  // the interrupted step is repeated
  std::optional<dhp::MeshShape> before_;  // previous layout of the state
  /// The trainings that have the state, all after the same step; more than one only during a takeover.
  std::vector<std::unique_ptr<Built>> built_;
  Clock::time_point since_ = Clock::now();  // end of the last generation
};

}  // namespace examples
