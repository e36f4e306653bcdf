// ZeRO: sharding changes no bit of losses, norms and weights.
#include <tests/parallel/sharded_reducer.hpp>

namespace {

using Cases = ShardedCases<Cpu>;

}  // namespace

TEST_CASE("ZeRO: with one micro-batch per replica all stages have the bits of plain sums") {
  for (const int data : {2, 3}) {
    auto settings = three_steps(false);
    settings.micro_batches = data;
    settings.optimizer = AdamWOptions{};
    const Layout layout{{.data = data}};
    const auto plain = Cases::run_bert(layout, settings);
    for (const auto stage : zero_stages) {
      CAPTURE(data);
      CAPTURE(static_cast<int>(stage));
      check_same(plain, Cases::run_bert(layout, with(stage, settings)));
    }
    // Stage 1 sums once per step, so it adds in the same order also with several micro-batches per replica.
    settings.micro_batches = 3 * data;
    check_same(Cases::run_bert(layout, settings),
               Cases::run_bert(layout, with(ZeroStage::optimizer, settings)));
  }
}

TEST_CASE("ZeRO: exact sums have the serial bits for all optimizers and unequal shares") {
  // Shares are the same in all stages, so most optimizers need one stage; LAMB, the most complex, is run in all stages.
  for (const auto& [optimizer, stages] :
       {std::pair(OptimizerChoice(SgdOptions{.momentum = 0.9, .weight_decay = 0.01}),
                  std::vector{ZeroStage::optimizer}),
        {LarsOptions{.weight_decay = 0.01}, {ZeroStage::weights}},
        {AdamWOptions{}, {ZeroStage::gradients}},
        {LambOptions{}, {zero_stages.begin(), zero_stages.end()}}}) {
    auto settings = three_steps(true);
    settings.micro_batches = 5;
    settings.optimizer = optimizer;
    const auto serial = Cases::run_bert({}, settings);
    // One of six replicas has no micro-batch.
    for (const auto& mesh : {MeshShape{.data = 6}, {.data = 2, .pipeline = 2}})
      for (const auto stage : stages) {
        CAPTURE(optimizer.index());
        CAPTURE(to_text(mesh));
        CAPTURE(static_cast<int>(stage));
        auto found = Cases::run_bert({mesh}, with(stage, settings));
        found.skipped = serial.skipped;  // has a list per rank, so the sizes differ
        check_same(serial, found);
      }
  }
}

TEST_CASE("ZeRO: 16 bits with shares of masters, and fp64, have the bits of plain sums") {
  for (const auto compute : {DType::bf16, DType::f16, DType::f64}) {
    auto settings = three_steps(true, compute);
    settings.micro_batches = 4;
    settings.optimizer = LambOptions{};
    if (compute == DType::f16) settings.loss_scale = {.dynamic = true, .initial = 1 << 24};
    const Layout layout{{.data = 2}};
    const auto plain = Cases::run_bert(layout, settings);
    if (compute == DType::f16) CHECK(plain.skipped[0][0]);
    for (const auto stage : zero_stages) {
      CAPTURE(name_of(compute));
      CAPTURE(static_cast<int>(stage));
      check_same(plain, Cases::run_bert(layout, with(stage, settings)));
    }
  }
}

TEST_CASE("ZeRO: H, P, tied weights and every schedule have the bits of plain sums") {
  auto settings = three_steps(true);
  settings.micro_batches = 6;
  settings.optimizer = LambOptions{};
  std::vector<Layout> layouts{{{.data = 2, .tensor = 2, .pipeline = 2}}};
  for (const auto& schedule : built_in_schedules())
    layouts.push_back(with_chunks({.data = 2, .pipeline = 2}, schedule, 2));
  for (const auto& layout : layouts) {
    const auto plain = Cases::run_everything(layout, settings);
    for (const auto stage : zero_stages) {
      if (layout.mesh.tensor == 1 && stage == ZeroStage::optimizer) continue;  // no moves in passes
      CAPTURE(to_text(layout));
      CAPTURE(static_cast<int>(stage));
      check_same(plain, Cases::run_everything(layout, with(stage, settings)));
    }
  }
}

// With copies, each replica also updates the shares of the replicas after it.
TEST_CASE("ZeRO: redundant copies of shares change nothing and equal their originals") {
  for (const auto& [compute, stage, redundancy] : {std::tuple(DType::f32, ZeroStage::optimizer, 1),
                                                   {DType::bf16, ZeroStage::gradients, 7},
                                                   {DType::bf16, ZeroStage::weights, 1},
                                                   {DType::f32, ZeroStage::weights, 7}}) {
    CAPTURE(name_of(compute));
    CAPTURE(redundancy);
    auto settings = with(stage, three_steps(compute == DType::f32, compute));
    if (compute == DType::bf16) settings.optimizer = LambOptions{};
    const Layout layout{{.data = 3}};
    const auto plain = Cases::run_bert(layout, settings);
    settings.sharding.redundancy = redundancy;
    check_same(plain, Cases::run_bert(layout, settings));
  }
  auto settings = with(ZeroStage::weights, three_steps(true, DType::bf16));
  settings.sharding.redundancy = 1;
  using Values = std::vector<std::byte>;
  std::mutex mutex;
  std::map<std::tuple<std::string, std::int64_t, std::int64_t>, std::vector<Values>>
      held;  // by place
  on_each_rank<Cpu>(
      {{.data = 3}}, settings, Cases::small_bert,
      [](Cpu& dev) { return everything_batch(dev, 0, 0, words); },
      [&](Cpu& dev, Mesh<Cpu>& mesh, auto& stage, auto& trainer) {
        for (int step = 0; step < 3; ++step)
          trainer.step(assigned(mesh, settings.micro_batches, [&](std::int64_t k) {
            return everything_batch(dev, step, k, words);
          }));
        auto& store = stage.store();
        trainer.replicas()->synchronize(dev);
        const std::lock_guard lock(mutex);
        for (const auto& piece : state_pieces(store, trainer.optimizer()))
          if (piece.sharded_over_data)
            held[{piece.piece.name, piece.piece.part.first, piece.piece.range.first}].emplace_back(
                piece.data.bytes(), piece.data.bytes() + piece.data.size_bytes());
      });
  CHECK(held.size() > 20);
  for (const auto& [place, values] : held) {
    CAPTURE(std::get<0>(place));
    REQUIRE(values.size() == 2);
    CHECK(values[0] == values[1]);
  }
}

TEST_CASE("ZeRO: evaluation with unequal shares gives the serial loss") {
  const auto evaluate = [](const Layout& layout, const RunSettings& settings) {
    double loss = 0;
    on_each_rank<Cpu>(
        layout, settings, Cases::small_bert,
        [](Cpu& dev) { return everything_batch(dev, 0, 0, words); },
        [&](Cpu& dev, Mesh<Cpu>& mesh, auto&, auto& trainer) {
          const auto found = trainer.evaluate(assigned(
              mesh, 5, [&](std::int64_t k) { return everything_batch(dev, 0, k, words); }));
          if (mesh.world().rank() == 0) loss = found.value();
        });
    return loss;
  };
  const auto settings = three_steps(true);
  const auto serial = evaluate({}, settings);
  for (const auto stage : zero_stages)
    CHECK(evaluate({{.data = 3}}, with(stage, settings)) == serial);
}

TEST_CASE("ZeRO: a single replica holds everything; shares without DataParallel are refused") {
  const auto settings = three_steps(false);
  check_same(Cases::run_bert({}, settings),
             Cases::run_bert({}, with(ZeroStage::weights, settings)));
  Cpu dev;
  const auto weight = std::make_shared<ParameterState<Cpu>>(
      ParameterSpec{.name = "w", .shape = {40, 500}, .init = normal(0.1)}, 0, 0);
  ParameterStore<Cpu> store(dev, {weight}, {.sharding = {ZeroStage::weights}}, {0, 2});
  CHECK(store.size() == detail::segment_tile);
  CHECK(store.held().size() == 1);
  CHECK(weight->value.empty());
  CHECK_THROWS_WITH(static_cast<void>(Norms<Cpu>({}, {}, 1).gradient_squares(dev, store)),
                    doctest::Contains("used without DataParallel, which moves shares"));
}

TEST_CASE("ZeRO: no tile of a parameter crosses a page, so no share cuts a tile") {
  Cpu dev;
  ParameterList<Cpu> parameters;
  for (const std::int64_t count : {10'000, 10'000, 40'000, 100, 16'284, 5'000})
    parameters.push_back(std::make_shared<ParameterState<Cpu>>(
        ParameterSpec{.name = concat("w", parameters.size()), .shape = {count}}, 0, 0));
  const ParameterStore<Cpu> store(dev, parameters, {.sharding = {ZeroStage::optimizer}}, {0, 2});
  for (const auto& parameter : parameters)
    for (auto first = parameter->range.first; first < parameter->range.last;
         first += detail::segment_tile)
      CHECK(first / detail::segment_tile ==
            (std::min(first + detail::segment_tile, parameter->range.last) - 1) /
                detail::segment_tile);
}
