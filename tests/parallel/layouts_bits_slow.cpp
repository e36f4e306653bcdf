// With exact sums and tensor groups, losses, norms, values and gradients have the same bits in every layout, with every
// reducer and bucket size, with recompute, and with any number of threads.
#include <tests/parallel/layouts.hpp>

namespace {

const AnySchedule one_f_one_b = OneForwardOneBackward{};
const AnySchedule interleaved = Interleaved{};
const AnySchedule zero_bubble = ZeroBubble{};

RunResult run(const Layout& layout, const RunSettings& settings,
              const EverythingOptions& options = {}, bool fixed = false) {
  return run_everything(layout, settings, options, {.changing = true, .fixed = fixed});
}

/// Checks that each layout gives the bits of the serial run. Returns the serial run.
RunResult check_bits(const std::vector<Layout>& layouts, const RunSettings& settings,
                     const EverythingOptions& options = {}) {
  return check_layouts(0, layouts, settings, options, {.changing = true});
}

RunSettings exactly(DType compute) {
  return {.compute = compute, .deterministic = true, .steps = 3, .lr = 0.02};
}

Layout spread(int data, int pipeline, const AnySchedule& kind = one_f_one_b, int chunks = 1) {
  return {{.data = data, .pipeline = pipeline}, kind, chunks};
}

}  // namespace

TEST_CASE("deterministic: replicas and stages change no bit, fp32") {
  std::vector<Layout> layouts;
  for (const int data : {2, 3, 4, 8}) layouts.push_back(spread(data, 1));
  for (const int pipeline : {2, 3, 4, 8})
    for (const auto& kind : built_in_schedules())
      layouts.push_back(with_chunks({.pipeline = pipeline}, kind, 2));
  for (const auto& kind : built_in_schedules()) {
    layouts.push_back(with_chunks({.data = 2, .pipeline = 2}, kind, 3));
    layouts.push_back(with_chunks({.data = 3, .pipeline = 2}, kind, 2));
  }
  layouts.push_back(spread(2, 4, zero_bubble));
  layouts.push_back(spread(1, 1, interleaved, 4));
  REQUIRE(check_bits(layouts, exactly(DType::f32)).losses.size() == 3);
}

TEST_CASE("deterministic: exact sums agree with floating-point sums, fp64") {
  const auto exact = run({}, exactly(DType::f64));
  auto settings = exactly(DType::f64);
  settings.deterministic = false;
  const auto plain = run({}, settings);
  check_losses(plain, exact, 1e-12);
  CHECK(difference(plain.values, exact.values).worst <= 1e-9);
  CHECK(difference(plain.gradients, exact.gradients).worst <= 1e-9);
}

TEST_CASE("deterministic: replicas and stages change no bit, fp64 and 16 bits") {
  for (const auto compute : {DType::f64, DType::bf16})
    check_bits({spread(3, 1), spread(2, 3, zero_bubble)}, exactly(compute));
}

TEST_CASE("deterministic: reducers, buckets, recompute and threads change no bit") {
  auto settings = exactly(DType::f32);
  const auto serial = run({}, settings);
  SUBCASE("plain reducer") { settings.reducer = Plain{}; }
  SUBCASE("a bucket for each parameter") { settings.reducer = Bucketed{.bytes = 1}; }
  SUBCASE("one bucket") { settings.reducer = Bucketed{.bytes = std::size_t{1} << 30}; }
  SUBCASE("two threads") { settings.threads = 2; }
  check_same_bits(serial, run({}, settings));
  check_same_bits(serial, run(spread(3, 2, zero_bubble), settings));
}

TEST_CASE("deterministic: recompute changes no bit") {
  const auto settings = exactly(DType::f32);
  const auto serial = run({}, settings);
  for (const auto& layout : {Layout{}, spread(3, 1), spread(2, 2, zero_bubble)})
    check_same_bits(serial, run(layout, settings, {.recompute = true}));
}

TEST_CASE("deterministic: masked rows that fill up a batch change no bit") {
  for (const auto compute : {DType::f64, DType::f32, DType::bf16}) {
    const auto settings = exactly(compute);
    for (const auto& layout : {Layout{}, spread(3, 2, zero_bubble), Layout{{.tensor = 2}}}) {
      INFO("layout ", to_text(layout), " name_of(compute) ", name_of(compute));
      check_same_bits(run(layout, settings), run(layout, settings, {}, true));
    }
  }
}

TEST_CASE("deterministic: without it some bits differ, which validates the comparison") {
  auto settings = exactly(DType::f32);
  settings.deterministic = false;
  CHECK(difference(run({}, settings).values, run(spread(3, 1), settings).values).worst > 0);
}

TEST_CASE("deterministic: the tensor axis changes no bit, alone and beside the others") {
  for (const auto compute : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    std::vector<Layout> layouts{{{.tensor = 2}},
                                {{.data = 2, .tensor = 2, .pipeline = 2}, zero_bubble}};
    if (compute == DType::f32)
      for (const Layout& more : {Layout{{.tensor = 4}}, Layout{{.tensor = 8}},
                                 Layout{{.data = 3, .tensor = 2}, one_f_one_b},
                                 Layout{{.tensor = 4, .pipeline = 2}, interleaved, 2},
                                 Layout{{.data = 2, .tensor = 2, .pipeline = 2}, ZeroBubbleV{}, 2}})
        layouts.push_back(more);
    check_bits(layouts, exactly(compute));
  }
}

TEST_CASE("deterministic: no axis changes a bit of a decoder's layers") {
  const EverythingOptions decoder{.blocks = 2, .decoder = true},
      recomputed{.blocks = 2, .recompute = true, .decoder = true};
  for (const auto compute : {DType::f32, DType::bf16}) {
    auto settings = exactly(compute);
    const auto serial = check_bits(
        {{{.tensor = 2}}, {{.tensor = 4}}, {{.data = 2, .tensor = 2, .pipeline = 2}, zero_bubble}},
        settings, decoder);
    for (const auto& layout : {Layout{{.tensor = 2}}, Layout{{.pipeline = 2}, ZeroBubbleV{}, 2}})
      check_same_bits(serial, run(layout, settings, recomputed));
    settings.sharding = {.stage = ZeroStage::weights, .bucket_bytes = 512};
    const auto sharded = run({{.data = 2, .tensor = 2}}, settings, decoder);
    CHECK(sharded.losses == serial.losses);
    CHECK(difference(serial.values, sharded.values).worst == 0);
  }
}

TEST_CASE("deterministic: the tensor axis changes no bit of any optimizer, also with ZeRO") {
  const std::vector<OptimizerChoice> optimizers{AdamWOptions{}, LarsOptions{}, LambOptions{}};
  for (const auto& optimizer : optimizers) {
    auto settings = exactly(DType::f32);
    settings.optimizer = optimizer;
    const auto serial = check_bits({{{.tensor = 4}}}, settings);
    settings.sharding = {.stage = ZeroStage::weights, .bucket_bytes = 512};
    const auto sharded = run({{.data = 2, .tensor = 2, .pipeline = 2}}, settings);
    CHECK(sharded.losses == serial.losses);
    CHECK(sharded.norms == serial.norms);
    CHECK(difference(serial.values, sharded.values).worst == 0);
  }
}

TEST_CASE("deterministic: synchronized batch norm depends on D alone") {
  const auto settings = exactly(DType::f32);
  const EverythingOptions synchronized{.synchronized = true};
  const auto two = run(spread(2, 1), settings, synchronized);
  for (const auto& layout : {spread(2, 2), spread(2, 4, zero_bubble), spread(2, 2, interleaved, 2)})
    check_same_bits(two, run(layout, settings, synchronized));
  CHECK(two.losses != run(spread(1, 1), settings, synchronized).losses);
  CHECK(two.losses != run(spread(2, 1), settings).losses);
}
