// In every layout, all collectives that an update needs come before its first write. A step that is interrupted between
// them can be finished, or begun anew.
#include <dhp/comm/observe/observer.hpp>
#include <tests/support/everything.hpp>
#include <tests/support/faulty_comm.hpp>
#include <tests/support/layouts.hpp>

namespace {

/// The kinds of a rank's calls, from its own thread and from the threads that run its collectives.
class Kinds {
 public:
  void add(CallKind kind) {
    const std::lock_guard lock(mutex_);
    kinds_.push_back(kind);
  }
  /// The calls since the last take().
  [[nodiscard]] std::vector<CallKind> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(kinds_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<CallKind> kinds_;
};

/// Notes every call of a rank, in all its groups.
class CallNotes final : public CommObserver<Cpu> {
 public:
  explicit CallNotes(std::shared_ptr<Kinds> kinds) : kinds_(std::move(kinds)) {}
  [[nodiscard]] std::unique_ptr<Watch> before(Cpu*, const CommCall& call) override {
    kinds_->add(call.kind);
    return nullptr;
  }
  [[nodiscard]] std::shared_ptr<CommObserver<Cpu>> of_part(Comm<Cpu>, CallSite) override {
    return std::make_shared<CallNotes>(kinds_);
  }

 private:
  std::shared_ptr<Kinds> kinds_;
};

/// The bytes of weights, running statistics, momenta and masters that this rank holds.
std::vector<std::byte> written(ParameterStore<Cpu>& store, Optimizer<Cpu>& optimizer) {
  std::vector<std::byte> bytes;
  for (const auto& held : state_pieces(store, optimizer))
    bytes.insert(bytes.end(), held.data.bytes(), held.data.bytes() + held.data.size_bytes());
  return bytes;
}

void check_update(const Layout& layout, const RunSettings& settings) {
  INFO("layout ", to_text(layout), " settings.optimizer.index() ", settings.optimizer.index());
  CAPTURE(name_of(settings.compute));
  CAPTURE(static_cast<int>(settings.sharding.stage));
  const auto batch = [](Cpu& dev, int step, std::int64_t k) {
    return everything_batch(dev, step, k);
  };
  on_ranks_of<Cpu>(layout.mesh.size(), [&](Cpu& dev, Comm<Cpu> world) {
    const auto calls = std::make_shared<Kinds>();
    on_rank(
        dev, observe<Cpu>(std::move(world), std::make_shared<CallNotes>(calls)), layout, settings,
        [](ModelBuilder<Cpu>& build) { return everything(build, {.blocks = 2}); },
        [&](Cpu& any) { return batch(any, 0, 0); },
        [&](Cpu&, Mesh<Cpu>& mesh, auto& pipeline, auto& trainer) {
          auto& store = pipeline.store();
          const auto now = [&] {
            if (auto* replicas = trainer.replicas()) replicas->synchronize(dev);
            return written(store, trainer.optimizer());
          };
          std::vector<std::byte> begin;
          int updates = 0;
          trainer.before_update([&] {
            CHECK(now() == begin);
            CHECK(!calls->take().empty());
            ++updates;
          });
          for (int step = 0; step < settings.steps; ++step) {
            begin = now();
            const auto report = trainer.step(assigned(
                mesh, settings.micro_batches, [&](std::int64_t k) { return batch(dev, step, k); }));
            CHECK(!report.skipped);
            CHECK(now() != begin);
            CHECK(updates == step + 1);
            // With ZeRO only the all-gathers of the new weights follow.
            for (const auto kind : calls->take()) {
              CHECK(store.is_sharded());
              CHECK(kind == CallKind::all_gather);
            }
          }
        });
  });
}

struct Interrupted {};

/// The course of the second step: it runs; or it is interrupted before its update, and then finished or repeated; or
/// the world ends before the interruption.
enum class Second { runs, is_finished, is_repeated, is_lost_before };
/// The state of each rank after three steps.
std::vector<std::vector<std::byte>> after_three(const Layout& layout, const RunSettings& settings,
                                                Second second) {
  std::vector<std::vector<std::byte>> states(static_cast<std::size_t>(layout.mesh.size()));
  on_ranks_of<Cpu>(layout.mesh.size(), [&](Cpu& dev, Comm<Cpu> world) {
    auto& state = states[static_cast<std::size_t>(world.rank())];
    // The communicator simulates an asynchronous device.
    std::atomic<bool> waited = false;      // the host has waited since the last call
    std::atomic<bool> world_ends = false;  // the next wait throws
    const auto called = [&](Cpu&, const Collective<Cpu>&) {
      waited = false;
      return false;  // the right communicator does it
    };
    const auto receive = [&](Comm<Cpu>& inner, Cpu& own, View<Cpu> buffer, int from) {
      waited = false;
      inner.recv(own, buffer, from);
    };
    const auto wait = [&] {
      if (world_ends.exchange(false)) throw Aborted("the world has ended");
      waited = true;
    };
    on_rank(
        dev, faulty(world, {.start = called, .recv = receive, .synchronize = wait}), layout,
        settings, [](ModelBuilder<Cpu>& build) { return everything(build, {.blocks = 2}); },
        [&](Cpu& any) { return everything_batch(any, 0, 0); },
        [&](Cpu&, Mesh<Cpu>& mesh, auto& pipeline, auto& trainer) {
          auto& store = pipeline.store();
          bool interrupts = false;
          trainer.set_update_barrier([&] {
            CHECK(waited);  // the sums of the step have arrived
            mesh.world().barrier();
            if (std::exchange(interrupts, false)) throw Interrupted();
          });
          const auto step = [&](int at) {
            return trainer.step(assigned(mesh, settings.micro_batches, [&](std::int64_t k) {
              return everything_batch(dev, at, k);
            }));
          };
          const auto first = step(0);
          interrupts = second == Second::is_finished || second == Second::is_repeated;
          world_ends = second == Second::is_lost_before;
          if (second == Second::runs) {
            step(1);
          } else if (second == Second::is_lost_before) {
            CHECK_THROWS_AS(step(1), Aborted);
            CHECK(trainer.steps_updated() == 1);
            CHECK_THROWS_AS(trainer.finish_interrupted(2), Error);  // its sums may be garbage
          } else {
            CHECK_THROWS_AS(step(1), Interrupted);
            CHECK(trainer.steps_updated() == 1);
            CHECK_THROWS_AS(trainer.finish_interrupted(3), Error);
          }
          if (second == Second::is_finished) {
            const auto report = trainer.finish_interrupted(2);
            REQUIRE(report.has_value());
            CHECK(report->step == 2);
            CHECK(report->loss != first.loss);
            if (auto* replicas = trainer.replicas()) replicas->updated(dev);
          } else if (second != Second::runs) {
            CHECK_FALSE(trainer.finish_interrupted(1).has_value());
            step(1);
          }
          CHECK(trainer.steps_started() == 2);
          step(2);
          if (auto* replicas = trainer.replicas()) replicas->synchronize(dev);
          state = written(store, trainer.optimizer());
          const auto& now = trainer.state();
          for (const auto number :
               {now.step, now.device.updates, static_cast<std::int64_t>(now.device.loss_scale),
                std::int64_t{now.device.good_steps}})
            state.push_back(static_cast<std::byte>(number));
        });
  });
  return states;
}

const OptimizerChoice choices[] = {SgdOptions{.momentum = 0.9, .weight_decay = 0.01},
                                   LarsOptions{.weight_decay = 0.01}, AdamWOptions{},
                                   LambOptions{}};

RunSettings two_steps(const OptimizerChoice& optimizer, DType compute) {
  return {.compute = compute, .optimizer = optimizer, .steps = 2, .micro_batches = 2, .lr = 0.01};
}

}  // namespace

TEST_CASE("update: nothing is written before the last collective, on tensor ranks and stages") {
  for (const auto& optimizer : choices)
    for (const auto compute : {DType::f32, DType::bf16})
      check_update({{.tensor = 2, .pipeline = 2}}, two_steps(optimizer, compute));
}

TEST_CASE("update: nothing is written early if replicas shard state, gradients or weights") {
  for (const auto& optimizer : choices)
    for (const auto stage : {ZeroStage::optimizer, ZeroStage::gradients, ZeroStage::weights}) {
      auto settings =
          two_steps(optimizer, stage == ZeroStage::gradients ? DType::bf16 : DType::f32);
      settings.sharding = {stage, 64 << 10};
      check_update({{.data = 2, .tensor = 2}}, settings);
    }
}

TEST_CASE("update: an interrupted step is finished or repeated, to the same bits") {
  for (const auto& optimizer : choices) {
    const auto compute = optimizer.index() % 2 == 0 ? DType::f16 : DType::f32;
    auto settings = two_steps(optimizer, compute);
    for (const auto& [layout, stage] :
         {std::pair{Layout{{.tensor = 2, .pipeline = 2}}, ZeroStage::none},
          std::pair{Layout{{.data = 2}}, ZeroStage::none},
          std::pair{Layout{{.data = 2}}, ZeroStage::optimizer},
          std::pair{Layout{{.data = 2}}, ZeroStage::weights}}) {
      INFO("optimizer.index() ", optimizer.index(), " name_of(compute) ", name_of(compute));
      INFO("layout ", to_text(layout), " static_cast<int>(stage) ", static_cast<int>(stage));
      settings.sharding = {stage, 64 << 10};
      const auto steady = after_three(layout, settings, Second::runs);
      CHECK(after_three(layout, settings, Second::is_finished) == steady);
      CHECK(after_three(layout, settings, Second::is_repeated) == steady);
      CHECK(after_three(layout, settings, Second::is_lost_before) == steady);
    }
  }
}
