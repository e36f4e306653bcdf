// The update of a step: every collective that it needs comes before its first write, in every layout.
#include <dhp/comm/observe/observer.hpp>
#include <tests/support/everything.hpp>
#include <tests/support/layouts.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <vector>

using namespace dhp;
using namespace tests;

namespace {

using Kinds = std::vector<CallKind>;

/// Notes every call of a rank, in all its groups.
class CallNotes final : public CommObserver<Cpu> {
 public:
  explicit CallNotes(std::shared_ptr<Kinds> kinds) : kinds_(std::move(kinds)) {}
  [[nodiscard]] std::unique_ptr<Watch> before(Cpu*, const Call& call) override {
    kinds_->push_back(call.kind);
    return std::make_unique<Watch>();
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
  const auto add = [&](const std::vector<HeldPiece<Cpu>>& pieces) {
    for (const auto& held : pieces)
      bytes.insert(bytes.end(), held.data.bytes(), held.data.bytes() + held.data.size_bytes());
  };
  add(store.pieces());
  for (const auto& each : optimizer.state())
    add(store.pieces(each.name, *each.buffer, each.narrow_only));
  return bytes;
}

void check_update(const Layout& layout, const RunSettings& settings) {
  CAPTURE(to_text(layout));
  CAPTURE(settings.optimizer.index());
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
            store.settle(dev);
            return written(store, trainer.optimizer());
          };
          std::vector<std::byte> begin;
          int updates = 0;
          trainer.before_update([&] {
            CHECK(now() == begin);
            CHECK(!calls->empty());
            calls->clear();
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
            for (const auto kind : *calls) {
              CHECK(store.is_sharded());
              CHECK(kind == CallKind::all_gather);
            }
          }
        });
  });
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

TEST_CASE("update: the same where replicas share out state, gradients or weights") {
  for (const auto& optimizer : choices)
    for (const auto stage : {ZeroStage::optimizer, ZeroStage::gradients, ZeroStage::weights}) {
      auto settings =
          two_steps(optimizer, stage == ZeroStage::gradients ? DType::bf16 : DType::f32);
      settings.sharding = {stage, 64 << 10};
      check_update({{.data = 2, .tensor = 2}}, settings);
    }
}
