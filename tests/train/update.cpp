// In every layout, all collectives that an update needs come before its first write. A step that is interrupted between
// them can be finished, or begun anew.
#include <tests/support/everything.hpp>
#include <tests/support/faulty_comm.hpp>
#include <tests/support/layouts.hpp>

namespace {

/// The bytes of weights, running statistics, momenta and masters that this rank holds.
std::vector<std::byte> written(ParameterStore<Cpu>& store, Optimizer<Cpu>& optimizer) {
  std::vector<std::byte> bytes;
  for (const auto& held : state_pieces(store, optimizer))
    bytes.insert(bytes.end(), held.data.bytes(), held.data.bytes() + held.data.size_bytes());
  return bytes;
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
    std::atomic<bool> updates = false;  // the barrier is passed: only ZeRO's new weights may follow
    const auto called = [&](Cpu&, const Collective<Cpu>& collective) {
      waited = false;
      if (updates) {
        CHECK(settings.sharding.stage != ZeroStage::none);
        CHECK(collective.call.kind == CallKind::all_gather);
      }
      return false;  // the right communicator does it
    };
    const auto receive = [&](Comm<Cpu>& inner, Cpu& own, View<Cpu> buffer, int from) {
      CHECK(!updates);
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
            updates = true;
            if (std::exchange(interrupts, false)) throw Interrupted();
          });
          const auto step = [&](int at) {
            updates = false;
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

}  // namespace

TEST_CASE("update: an interrupted step is finished or repeated, to the same bits") {
  for (const auto& optimizer : choices) {
    const auto compute = optimizer.index() % 2 == 0 ? DType::f16 : DType::f32;
    RunSettings settings{
        .compute = compute, .optimizer = optimizer, .micro_batches = 2, .lr = 0.01};
    for (const auto& [layout, stage] :
         {std::pair{Layout{{.tensor = 2, .pipeline = 2}}, ZeroStage::none},
          std::pair{Layout{{.data = 2}}, ZeroStage::none},
          std::pair{Layout{{.data = 2}}, ZeroStage::optimizer},
          std::pair{Layout{{.data = 2, .tensor = 2}}, ZeroStage::gradients},
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
