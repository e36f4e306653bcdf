// Layout invariance: every layout and schedule gives the serial run's losses, norms, gradients and parameters.
#include <tests/parallel/layouts.hpp>

namespace {

RunResult run(const Layout& layout, const RunSettings& settings) {
  return run_layout(
      layout, settings, [](ModelBuilder<Cpu>& build) { return everything(build); },
      // The same samples in every step, so that the loss falls.
      [](Cpu& dev, int, std::int64_t k) { return everything_batch(dev, 0, k); });
}

std::vector<Layout> layouts() {
  std::vector<Layout> all;
  for (int data = 1; data <= 8; data *= 2)
    for (int tensor = 1; data * tensor <= 8; tensor *= 2)
      for (int pipeline = 1; data * tensor * pipeline <= 8; pipeline *= 2)
        for (const auto& kind : built_in_schedules())
          all.push_back(
              with_chunks({.data = data, .tensor = tensor, .pipeline = pipeline}, kind, 2));
  return all;
}

}  // namespace

TEST_CASE("every layout gives the serial run's numbers, fp64") {
  const auto serial = run({}, {});
  REQUIRE(serial.losses.back() < serial.losses.front());
  for (const auto& layout : layouts()) {
    CAPTURE(to_text(layout));
    check_close(serial, run(layout, {}), 1e-9);
  }
}

TEST_CASE("a decoder's layers: layouts give the serial run's numbers, fp64") {
  const auto decoder = [](const Layout& layout) {
    return run_layout(
        layout, {},
        [](ModelBuilder<Cpu>& build) { return everything(build, {.blocks = 2, .decoder = true}); },
        [](Cpu& dev, int, std::int64_t k) { return everything_batch(dev, 0, k); });
  };
  const auto serial = decoder({});
  REQUIRE(serial.losses.back() < serial.losses.front());
  for (const MeshShape& mesh :
       {MeshShape{.data = 2}, MeshShape{.tensor = 2}, MeshShape{.tensor = 4},
        MeshShape{.pipeline = 2}, MeshShape{2, 2, 2}}) {
    CAPTURE(to_text(Layout{mesh}));
    check_close(serial, decoder({mesh}), 1e-9);
  }
}

TEST_CASE("every layout gives the serial run's losses, fp32") {
  const RunSettings settings{.compute = DType::f32};
  const auto oracle = run({}, {});
  for (const auto& layout : layouts()) {
    CAPTURE(to_text(layout));
    check_losses(oracle, run(layout, settings), 1e-4);
  }
}
