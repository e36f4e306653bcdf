// A linear layer's gradients: deferred weight gradients, and layers that share an input.
#include <dhp/cpu.hpp>
#include <tests/support/layer_run.hpp>

TEST_CASE("linear: the bias gradient is deferred with the weight gradient") {
  const auto run = [](LayerCase each, bool bias = true) {
    ModelBuilder<Cpu> build(Comm<Cpu>{});
    Sequential<Cpu> layer;
    layer.add("l", Linear<Cpu>(build, "l", {.in = 5, .out = 3, .bias = bias}));
    return run_layer(std::move(layer), each);
  };
  for (const bool deterministic : {false, true}) {
    LayerCase each{.shape = {2, 4, 5}, .deterministic = deterministic};
    const auto now = run(each);
    CHECK(run(each, false).gradients[0] == now.gradients[0]);
    each.defer = true;
    const auto late = run(each);
    CHECK(late.deferred == 2);
    CHECK(late.dx == now.dx);
    CHECK(late.early == std::vector{std::vector<double>(15), std::vector<double>(3)});
    CHECK(late.gradients == now.gradients);
  }
}

TEST_CASE("linear: the input gradient is added to beta times dx") {
  Cpu dev;
  ModelBuilder<Cpu> build(Comm<Cpu>{});
  detail::LinearParts<Cpu> layer(build, "l", {.in = 5, .out = 3}, {.columns = 0});
  ParameterList<Cpu> parameters;
  layer.parameters(parameters);
  ParameterStore<Cpu> store(dev, parameters, {.compute = DType::f64, .seed = 4});
  const auto back = [&](auto body) {
    store.zero_gradients(dev);
    Tape<Cpu> tape({});
    static_cast<void>(layer.forward(dev, random_tensor<double>(dev, {2, 4, 5}, 1), tape));
    auto dx = body(random_tensor<double>(dev, {2, 4, 3}, 2), tape);
    CHECK(tape.empty());
    return widened(dx);
  };
  const auto plain = back(
      [&](Tensor<Cpu> dy, Tape<Cpu>& tape) { return layer.backward(dev, std::move(dy), tape); });
  const auto weights = widened(dev, store.gradients({0, store.size()}));
  for (const double beta : {0.0, 1.0, 0.5}) {
    const auto onto = back([&](Tensor<Cpu> dy, Tape<Cpu>& tape) {
      auto dx = random_tensor<double>(dev, {2, 4, 5}, 3);
      layer.input_gradient(dev, dy.view(), 0, dx.mut(), beta);
      layer.backward_weight(dev, std::move(dy), tape);
      return dx;
    });
    const auto before = widened(random_tensor<double>(dev, {2, 4, 5}, 3));
    for (std::size_t at = 0; at < onto.size(); ++at)
      CHECK(std::abs(onto[at] - (plain[at] + beta * before[at])) < 1e-12);
    CHECK(widened(dev, store.gradients({0, store.size()})) == weights);
  }
}

TEST_CASE("linear: columns of padding are zeros, and their gradients are not read") {
  Cpu dev;
  for (const bool deterministic : {false, true}) {
    std::vector<std::vector<double>> results[2];
    for (const bool padded : {false, true}) {
      ModelBuilder<Cpu> build(Comm<Cpu>{});
      const auto table = build.parameter({.name = "table", .shape = {70, 5}});
      Linear<Cpu> layer(build, "l", {table}, {.padded = padded});
      ParameterList<Cpu> parameters;
      layer.parameters(parameters);
      ParameterStore<Cpu> store(dev, parameters,
                                {.compute = DType::f64, .deterministic = deterministic, .seed = 4});
      store.begin_gradients(dev);
      Tape<Cpu> tape({});
      const auto y = layer.forward(dev, random_tensor<double>(dev, {6, 5}, 1), tape);
      CHECK(y.shape() == layer.output_shape({6, 5}, {}));
      CHECK(y.columns() == (padded ? 128 : 70));
      Tensor<Cpu> bare(dev, DType::f64, {6, 70});
      copy_columns(dev, y.view(), 0, bare.mut(), 0, 70);
      const auto all = widened(y);
      for (std::size_t at = 0; at < all.size(); ++at)
        if (at % 128 >= 70 && padded) CHECK(all[at] == 0);
      Tensor<Cpu> dy(dev, DType::f64, y.shape());
      std::fill_n(dy.mut().data<double>(), dy.count(), NAN);
      copy_columns(dev, random_tensor<double>(dev, {6, 70}, 2), 0, dy.mut(), 0, 70);
      const auto dx = layer.backward(dev, std::move(dy), tape);
      store.complete_gradients(dev, {0, store.size()});
      results[padded] = {widened(bare), widened(dx),
                         widened(dev, store.gradients({0, store.size()}))};
    }
    CHECK(results[0] == results[1]);
  }
}

TEST_CASE("linear: a layer without inputs or outputs is refused, by name") {
  ModelBuilder<Cpu> build(Comm<Cpu>{});
  CHECK(message_of([&] { Linear<Cpu>(build, "l", {.in = 8, .out = 0}); }) ==
        "parameter l.weight of shape [0, 8] has no elements; extents of 1 or more would be right");
  CHECK(message_of([&] { Linear<Cpu>(build, "l", {}); }).starts_with("parameter l.weight of"));
}

TEST_CASE("linear: a micro-batch without an input is refused, by the layer's weight") {
  Cpu dev;
  ModelBuilder<Cpu> build(Comm<Cpu>{});
  Linear<Cpu> layer(build, "l", {.in = 8, .out = 2});
  const MicroBatch<Cpu> none;
  Tape<Cpu> tape({}, &none);
  constexpr const char* error = "a layer with the weight l.weight needs an x of [.., 8], but x is";
  CHECK(has(message_of([&] { (void)layer.flops(none.input.shape(), none); }), error));
  CHECK(has(message_of([&] { (void)layer.forward(dev, {}, tape); }), error));
}
