// Layouts and batches with uneven shares, and layouts that must be refused.
#include <tests/parallel/layouts.hpp>
#include <tests/support/regression.hpp>

namespace {

const AnySchedule interleaved = Interleaved{};
const AnySchedule zero_bubble = ZeroBubble{};

std::string refusal(const Layout& layout, const EverythingOptions& options = {}) {
  return message_of([&] { (void)run_everything(layout, {.steps = 1}, options); });
}

}  // namespace

TEST_CASE("odd layouts: 3x1x1, 1x1x3, 3x2x1, 3x1x2 give the serial run's numbers") {
  check_layouts(1e-9,
                {{{.data = 3}},
                 {{.pipeline = 3}},
                 {{.pipeline = 3}, interleaved, 3},
                 {{.pipeline = 3}, zero_bubble},
                 {{.data = 3, .tensor = 2}},
                 {{.data = 3, .pipeline = 2}, zero_bubble}},
                {});
}

TEST_CASE("odd layouts: 7 micro-batches over 4 stages give the serial run's numbers") {
  std::vector<Layout> layouts;
  for (const auto& kind : built_in_schedules())
    layouts.push_back(with_chunks({.pipeline = 4}, kind, 2));
  check_layouts(1e-9, layouts, {.micro_batches = 7});
}

TEST_CASE("odd layouts: a vocabulary of 31 on 2 and 4 tensor ranks gives the serial numbers") {
  check_layouts(1e-9,
                {{{.tensor = 2}}, {{.tensor = 4}}, {{.tensor = 4, .pipeline = 2}, zero_bubble}}, {},
                {.vocabulary = 31});
}

TEST_CASE("odd layouts: fewer micro-batches than replicas give the serial run's numbers") {
  for (const bool deterministic : {false, true})
    check_layouts(1e-9,
                  {{{.data = 3}},
                   {{.data = 4, .pipeline = 2}},
                   {{.data = 3, .pipeline = 2}, zero_bubble},
                   {{.data = 4, .tensor = 2}}},
                  {.deterministic = deterministic, .steps = 3, .micro_batches = 2});
}

TEST_CASE("odd layouts: a short last micro-batch gives the serial run's numbers") {
  // Replicas have unequal numbers of samples, so a mean of their means would be wrong.
  check_layouts(1e-9,
                {{{.data = 2}},
                 {{.data = 3}},
                 {{.pipeline = 4}, zero_bubble},
                 {{.data = 2, .tensor = 2, .pipeline = 2}}},
                {}, {}, {.short_batch = 7});
}

TEST_CASE("odd layouts: synchronized batch norm under D is the same under every H and P") {
  const EverythingOptions synchronized{.synchronized = true};
  const auto two = run_everything({{.data = 2}}, {}, synchronized);
  for (const auto& layout :
       {Layout{{.data = 2, .pipeline = 2}, zero_bubble}, Layout{{.data = 2, .tensor = 2}},
        Layout{{.data = 2, .tensor = 2, .pipeline = 2}}}) {
    CAPTURE(to_text(layout));
    check_close(two, run_everything(layout, {}, synchronized), 1e-9);
  }
}

namespace {

// Rank r of two has rows [rows[r], rows[r + 1]). same_shapes: tells the layer that both have equally many rows.
void check_joined_batch_norm(const std::vector<std::int64_t>& rows, bool same_shapes) {
  struct Found {
    std::vector<double> y, dx, gamma_gradient, mean, variance;
  };
  const auto pass = [&](Comm<Cpu> group, Range mine) {
    Cpu dev;
    ModelBuilder<Cpu> build(Comm<Cpu>{}, group);
    BatchNorm<Cpu> layer(build, "bn", {.channels = 4, .relu = true, .synchronized = true});
    ParameterList<Cpu> parameters;
    layer.parameters(parameters);
    const ParameterStore<Cpu> store(dev, parameters, {.compute = DType::f64});
    const auto part = [&](std::uint32_t use) {
      const auto whole = random_tensor<double>(dev, {rows[2], 4}, use);
      return clone(dev, whole.view().slice(mine.first, mine.last));
    };
    Tape<Cpu> tape({.same_shapes = same_shapes});
    const auto y = layer.forward(dev, part(1), tape);
    const auto dx = layer.backward(dev, part(2), tape);
    return Found{widened(y), widened(dx), host_values(dev, parameters[0]->gradient),
                 host_values(dev, parameters[2]->gradient),
                 host_values(dev, parameters[3]->gradient)};
  };
  const auto joined = pass({}, {0, rows[2]});
  std::vector<Found> found(2);
  run_ranks(2, [&](Comm<Cpu> world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    found[rank] = pass(std::move(world), {rows[rank], rows[rank + 1]});
  });
  const auto both = [&](std::vector<double> Found::*of) {
    auto values = found[0].*of;
    values.insert(values.end(), (found[1].*of).begin(), (found[1].*of).end());
    return values;
  };
  CHECK(distance(both(&Found::y), joined.y) < 1e-12);
  CHECK(distance(both(&Found::dx), joined.dx) < 1e-12);
  for (std::size_t channel = 0; channel < 4; ++channel) {
    // Gradients of replicas are summed later. The running statistics are those of the joined batch on each replica.
    CHECK(std::abs(found[0].gamma_gradient[channel] + found[1].gamma_gradient[channel] -
                   joined.gamma_gradient[channel]) < 1e-12);
    for (const auto& one : found) {
      CHECK(std::abs(one.mean[channel] - joined.mean[channel]) < 1e-12);
      CHECK(std::abs(one.variance[channel] - joined.variance[channel]) < 1e-12);
    }
  }
}

}  // namespace

TEST_CASE("synchronized batch norm equals batch norm over the joined batch, parts of any size") {
  check_joined_batch_norm({0, 3, 8}, false);
  check_joined_batch_norm({0, 4, 8}, false);
  check_joined_batch_norm({0, 4, 8}, true);
}

TEST_CASE("synchronized batch norm refuses unequal shares at once") {
  const RunSettings seven{.steps = 1, .micro_batches = 7};
  const auto start = std::chrono::steady_clock::now();
  const auto message =
      message_of([&] { run_everything({{.data = 2}}, seven, {.synchronized = true}); });
  CHECK(has(message, "the same number of micro-batches on all replicas"));
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  CHECK(taken.count() < 30);  // well before the time limit
}

TEST_CASE("odd layouts: dropout numbers the rows of unpacked samples") {
  // No side input gives row numbers here: they follow from the number of the first sample.
  const auto make_model = [](ModelBuilder<Cpu>& build) {
    split_first_and_second(build);
    Model<Cpu> model;
    model.add("first", Linear<Cpu>(build, "first", {.in = 6, .out = 8}));
    model.add("second", Linear<Cpu>(build, "second", {.in = 8, .out = 5}));
    model.add("dropout", Dropout<Cpu>(build, 0.5));
    model.add("third", Linear<Cpu>(build, "third", {.in = 5, .out = 1}));
    model.loss = MeanSquaredError<Cpu>();
    return model;
  };
  const auto make_batch = [](Cpu& dev, int, std::int64_t k) {
    const auto use = static_cast<std::uint32_t>(k);
    auto batch = regression_batch(k, random_tensor<double>(dev, {3, 6}, use),
                                  random_tensor<double>(dev, {3, 1}, 50 + use));
    batch.first_sample = 3 * k;
    return batch;
  };
  const auto serial = run_layout({}, {}, make_model, make_batch);
  for (const auto& layout : {Layout{{.data = 2}}, Layout{{.data = 3, .tensor = 2}},
                             Layout{{.data = 2, .tensor = 2, .pipeline = 2}, zero_bubble}}) {
    CAPTURE(to_text(layout));
    check_close(serial, run_layout(layout, {}, make_model, make_batch), 1e-9);
  }
}

TEST_CASE("optimizers follow the serial run, also with trust ratios of split weights") {
  for (const OptimizerChoice& optimizer :
       {OptimizerChoice(LarsOptions{.momentum = 0.9, .weight_decay = 0.01}),
        OptimizerChoice(AdamWOptions{}), OptimizerChoice(LambOptions{})}) {
    CAPTURE(optimizer.index());
    check_layouts(1e-9,
                  {{{.data = 2}},
                   {{.tensor = 4}},
                   {{.pipeline = 3}},
                   {{.data = 2, .tensor = 2, .pipeline = 2}, zero_bubble}},
                  {.optimizer = optimizer, .steps = 3, .lr = 0.01});
  }
}

TEST_CASE("16 bits: 2x1x2 and 2x2x2 stay close to the serial run") {
  for (const auto compute : {DType::bf16, DType::f16}) {
    const RunSettings settings{.compute = compute,
                               .loss_scale = {.dynamic = compute == DType::f16, .initial = 1024}};
    const double tolerance = compute == DType::bf16 ? 2e-2 : 3e-3;
    const auto oracle = run_everything({}, {});
    const auto serial = run_everything({}, settings);
    CAPTURE(name_of(compute));
    check_losses(oracle, serial, tolerance);
    for (const auto& layout : {Layout{{.data = 2, .pipeline = 2}},
                               Layout{{.data = 2, .tensor = 2, .pipeline = 2}, zero_bubble}}) {
      CAPTURE(to_text(layout));
      check_losses(serial, run_everything(layout, settings), tolerance);
    }
  }
}

TEST_CASE("fp16: a step that overflows is skipped by all ranks alike") {
  for (const bool deterministic : {false, true}) {
    // The initial scale is too large: some steps are skipped until it fits.
    const RunSettings settings{.compute = DType::f16,
                               .deterministic = deterministic,
                               .steps = 16,
                               .loss_scale = {.dynamic = true, .initial = 16777216}};
    const auto serial = run_everything({}, settings);
    const auto& expected = serial.skipped.at(0);
    CHECK(expected.front());
    CHECK_FALSE(expected.back());
    CHECK(serial.losses.back() < serial.losses.front());
    for (const auto& layout : {Layout{{.data = 2}}, Layout{{.tensor = 2}},
                               Layout{{.data = 2, .tensor = 2, .pipeline = 2}, zero_bubble}}) {
      INFO("layout ", to_text(layout), " deterministic ", deterministic);
      const auto found = run_everything(layout, settings);
      for (const auto& skipped : found.skipped) CHECK(skipped == found.skipped.front());
      CHECK(found.skipped.front().front());
      CHECK(found.losses.back() < found.losses.front());
    }
  }
}

TEST_CASE("impossible layouts: one sentence gives the reason") {
  CHECK(has(refusal({{.tensor = 2}}, {.heads = 3}), "heads"));
  CHECK(has(refusal({{.tensor = 3}}), "8 heads cannot be split over a tensor axis of 3"));
  CHECK(has(refusal({{.pipeline = 17}}), "17 parts for 16 layers"));
  CHECK(has(refusal({{.pipeline = 4}, interleaved, 5}), "20 parts for 16 layers"));
  for (const auto& kind : built_in_schedules())
    if (kind.name() != Interleaved::name) CHECK(has(refusal({{.pipeline = 2}, kind, 3}), "chunk"));
}
