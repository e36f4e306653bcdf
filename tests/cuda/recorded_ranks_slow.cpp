// BERT on several ranks of emulated devices: recorded and unrecorded steps have the same bits.
#include <tests/cuda/emulator.hpp>
// The emulated device comes first, because the headers below are instantiated for it.
#include <dhp/cuda/kernels.hpp>
#include <tests/support/everything.hpp>
#include <tests/support/layouts.hpp>

namespace {

constexpr examples::BertConfig config{.layers = 1,
                                      .hidden = 16,
                                      .heads = 2,
                                      .vocabulary = 64,
                                      .positions = everything_length,
                                      .sequence_length = everything_length,
                                      .dropout = 0.1};
constexpr int steps = 3;

struct Found {
  std::vector<double> losses, norms;
  int replayed = 0;  ///< replayed steps of all ranks
};

/// fixed(step): whether the step's masked rows are padded to a fixed number.
Found train(const Layout& layout, bool record, auto fixed) {
  Found found;
  std::mutex mutex;
  // Emulated calls run one after another, so sums that overlap with the backward pass would deadlock.
  const RunSettings settings{
      .compute = DType::f32, .reducer = Plain{}, .micro_batches = 2, .record = record};
  const auto batch = [](Emulated& dev, int step, std::int64_t k, bool filled) {
    return everything_batch(dev, step, k, config.vocabulary, everything_samples, filled);
  };
  on_ranks_of<Emulated>(layout.mesh.size(), [&](Emulated& dev, Comm<Emulated> world) {
    on_rank(
        dev, world, layout, settings,
        [](ModelBuilder<Emulated>& build) { return examples::bert(build, config); },
        [&](Emulated& of) { return batch(of, 0, 0, true); },
        [&](Emulated& of, Mesh<Emulated>& mesh, auto&, auto& trainer) {
          const auto batches = [&](int step, bool filled) {
            return assigned(mesh, settings.micro_batches,
                            [&](std::int64_t k) { return batch(of, step, k, filled); });
          };
          for (int step = 0; step < steps; ++step) {
            auto mine = batches(step, fixed(step));
            mine.same_shapes = true;
            const auto report = trainer.step(mine);
            const std::lock_guard lock(mutex);
            found.replayed += report.replayed ? 1 : 0;
            if (world.rank() != 0) continue;
            found.losses.push_back(report.loss);
            found.norms.push_back(report.gradient_norm);
          }
        });
  });
  return found;
}

}  // namespace

TEST_CASE("recorded ranks: BERT with filled-up masked rows has the same bits as unrecorded") {
  for (const auto& layout :
       {Layout{{.data = 2}}, Layout{{.tensor = 2}}, Layout{{.pipeline = 2}, ZeroBubble{}}}) {
    CAPTURE(to_text(layout));
    const auto all = [](int) { return true; };
    const auto plain = train(layout, false, all);
    const auto recorded = train(layout, true, all);
    CHECK(plain.replayed == 0);
    CHECK(recorded.replayed == (steps - 1) * layout.mesh.size());
    CHECK(recorded.losses == plain.losses);
    CHECK(recorded.norms == plain.norms);
  }
}

TEST_CASE("recorded ranks: a varying number of masked rows breaks the promise of equal shapes") {
  const auto but_the_third = [](int step) { return step != 2; };
  CHECK(has(message_of([&] { (void)train({{.data = 2}}, true, but_the_third); }),
            "step 3: its inputs have other shapes than those of the steps before"));
}
