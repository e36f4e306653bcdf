// Frozen parameters and adapters: every layout gives the serial run's numbers, and frozen parameters keep their bytes.
#include <tests/parallel/layouts.hpp>

namespace {

enum class Trained { adapters, head };

bool ends_the_model(const std::string& name) {
  return name.starts_with("cls.seq") || name.starts_with("bert.pooler");
}

Model<Cpu> model(ModelBuilder<Cpu>& build, Trained trained) {
  build.train_only([=](const std::string& name) {
    return ends_the_model(name) || (trained == Trained::adapters && has(name, "lora_"));
  });
  if (trained == Trained::adapters)
    build.adapt({.layers = {"query", "value", "output.dense", "intermediate.dense"},
                 .rank = 3,
                 .alpha = 6,
                 .dropout = 0.1});
  return everything(build, {.blocks = 2});
}

RunResult run(Trained trained, const Layout& layout, const RunSettings& settings) {
  return run_layout(
      layout, settings, [=](ModelBuilder<Cpu>& build) { return model(build, trained); },
      [](Cpu& dev, int, std::int64_t k) { return everything_batch(dev, 0, k); });
}

std::vector<Layout> layouts() {
  return {{.mesh = {.data = 3, .pipeline = 2}, .schedule = ZeroBubble{}},
          {.mesh = {.pipeline = 2}, .schedule = Interleaved{}, .chunks = 2},
          {.mesh = {.pipeline = 2}, .schedule = ZeroBubbleV{}, .chunks = 2},
          {.mesh = {.data = 2, .tensor = 2, .pipeline = 2}}};
}

}  // namespace

TEST_CASE("frozen parameters: every layout and stage of ZeRO gives the serial run's numbers") {
  for (const auto trained : {Trained::adapters, Trained::head}) {
    const auto serial = run(trained, {}, {.steps = 3, .lr = 0.3});
    REQUIRE(serial.losses.back() < serial.losses.front());
    for (const auto& layout : layouts()) {
      CAPTURE(to_text(layout));
      check_close(serial, run(trained, layout, {.steps = 3, .lr = 0.3}), 1e-9);
    }
    for (const auto stage : {ZeroStage::optimizer, ZeroStage::gradients, ZeroStage::weights}) {
      const auto shared =
          run(trained, {.mesh = {.data = 2, .tensor = 2, .pipeline = 2}},
              {.sharding = {.stage = stage, .bucket_bytes = 512}, .steps = 3, .lr = 0.3});
      check_losses(serial, shared, 1e-9);
      CHECK(difference(serial.values, shared.values).worst <= 1e-9);
    }
  }
}

TEST_CASE("frozen parameters: exact sums have the same bits in every layout") {
  const RunSettings settings{.compute = DType::f32, .deterministic = true, .steps = 3};
  const auto serial = run(Trained::adapters, {}, settings);
  check_same_bits(serial, run(Trained::adapters, {.mesh = {.data = 4}}, settings));
  check_same_bits(serial, run(Trained::adapters, {.mesh = {.data = 2, .pipeline = 2}}, settings));
  check_same_bits(serial, run(Trained::adapters, {.mesh = {.data = 2, .tensor = 2}}, settings));
}

TEST_CASE("frozen parameters: they have no gradient and no state, and keep their values") {
  const auto before = run(Trained::adapters, {}, {.steps = 0});
  const auto after = run(Trained::adapters, {}, {.steps = 5, .lr = 0.3});
  for (const auto& [name, values] : before.values) {
    CAPTURE(name);
    const bool trained = has(name, "lora_") || ends_the_model(name);
    const bool statistics = has(name, "running_");
    CHECK((after.values.at(name) == values) == !(trained || statistics));
    CHECK(after.gradients.contains(name) == (trained || statistics));
  }
  on_each_rank(
      {}, {}, [](ModelBuilder<Cpu>& build) { return model(build, Trained::adapters); },
      [](Cpu& dev) { return everything_batch(dev, 0, 0); },
      [](Cpu&, auto&, auto& pipeline, auto&) {
        auto& store = pipeline.store();
        std::int64_t of_trained = 0, weights = 0;
        for (const auto& parameter : store.parameters()) {
          weights += parameter->value.count();
          if (!parameter->spec.frozen)
            of_trained += parameter->value.count() + detail::segment_alignment;
        }
        CHECK(store.size() <= of_trained);
        CHECK(of_trained < weights / 2);
      });
}

TEST_CASE("frozen parameters: a fully frozen model and an adapter without a layer are refused") {
  const auto start = [](auto describe) {
    return message_of([&] {
      on_each_rank(
          {}, {}, describe, [](Cpu& dev) { return everything_batch(dev, 0, 0); }, [](auto&...) {});
    });
  };
  const auto all_frozen = start([](ModelBuilder<Cpu>& build) {
    build.train_only([](const std::string&) { return false; });
    return everything(build, {.blocks = 2});
  });
  CHECK(has(all_frozen, "all of the model's parameters are frozen"));
  CHECK(LowRankOptions{.rank = 4, .alpha = 6}.scale() == 1.5);
  ModelBuilder<Cpu> build({});
  build.adapt({.layers = {"query", "self.query", "qurey"}});
  (void)everything(build, {.blocks = 2});
  CHECK(has(message_of([&] { build.check_described(); }), "called qurey"));
}
