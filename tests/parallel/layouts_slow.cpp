// Layout invariance: every layout and schedule gives the serial run's losses, norms, gradients and parameters.
#include <tests/parallel/layouts.hpp>

namespace {

std::vector<Layout> layouts() {
  std::vector<Layout> all;
  for (int data = 1; data <= 8; data *= 2)
    for (int tensor = 1; data * tensor <= 8; tensor *= 2)
      for (int pipeline = 1; data * tensor * pipeline <= 8; pipeline *= 2)
        for (const auto& kind : built_in_schedules()) {
          all.push_back(
              with_chunks({.data = data, .tensor = tensor, .pipeline = pipeline}, kind, 2));
          if (pipeline == 1 && data * tensor > 1) break;  // one stage: schedules are alike
        }
  return all;
}

}  // namespace

TEST_CASE("every layout gives the serial run's numbers, fp64") {
  const auto serial = check_layouts(1e-9, layouts(), {});
  REQUIRE(serial.losses.back() < serial.losses.front());
}

TEST_CASE("layouts of decoder layers give the serial run's numbers, fp64") {
  const auto serial = check_layouts(1e-9,
                                    {{{.data = 2}},
                                     {{.tensor = 2}},
                                     {{.tensor = 4}},
                                     {{.pipeline = 2}},
                                     {{.data = 2, .tensor = 2, .pipeline = 2}}},
                                    {}, {.blocks = 2, .decoder = true});
  REQUIRE(serial.losses.back() < serial.losses.front());
}

TEST_CASE("all three axes under every schedule give the serial run's losses, fp32") {
  const RunSettings settings{.compute = DType::f32};
  const auto oracle = run_everything({}, {});
  for (const auto& kind : built_in_schedules()) {
    CAPTURE(kind.name());
    const auto layout = with_chunks({.data = 2, .tensor = 2, .pipeline = 2}, kind, 2);
    check_losses(oracle, run_everything(layout, settings), 1e-4);
  }
}
