// Gradient checks of every layer, in fp64 at 1e-6.
#include <dhp/parallel/channels.hpp>
#include <dhp/parallel/tensor.hpp>
#include <tests/support/gradients.hpp>

using namespace dhp;
using namespace tests;

namespace {

constexpr std::int64_t samples = 3;
constexpr std::int64_t length = 4;

struct Bench {
  Cpu dev;
  Build<Cpu> build;
  MicroBatch<Cpu> batch = token_batch(dev, samples, length, 11);
  Bench() { build.compute = DType::f64; }
  Tensor<Cpu> rows(std::int64_t columns) {
    return random_tensor<double>(dev, {samples * length, columns}, 1);
  }
  Tensor<Cpu> images(std::int64_t side, std::int64_t channels) {
    return random_tensor<double>(dev, {samples, side, side, channels}, 2);
  }
  template <class L>
  void check(L layer, Tensor<Cpu> x) {
    check_gradients(dev, layer, std::move(x), batch);
  }
};

}  // namespace

TEST_CASE("gradients: linear, with and without bias") {
  Bench bench;
  bench.check(Linear<Cpu>(bench.build, "a", {.in = 5, .out = 3}), bench.rows(5));
  bench.check(Linear<Cpu>(bench.build, "b", {.in = 5, .out = 3, .bias = false}), bench.rows(5));
}

TEST_CASE("gradients: column- and row-parallel linear and bias in a group of one") {
  Bench bench;
  bench.check(column_parallel_linear(bench.build, "a", {.in = 4, .out = 6}), bench.rows(4));
  bench.check(RowParallelLinear<Cpu>(bench.build, "b", {.in = 4, .out = 6}), bench.rows(4));
  bench.check(Bias<Cpu>(bench.build, "c", 4), bench.rows(4));
}

TEST_CASE("gradients: a feed-forward pair, bare and with its second bias, recomputed") {
  Bench bench;
  const FeedForwardOptions options{.columns = 4, .inner = 7};
  bench.check(FeedForward<Cpu>(bench.build, "a", "b", options), bench.rows(4));
  bench.check(parallel_feed_forward(bench.build, "c", "d", options), bench.rows(4));
  bench.check(recompute<Cpu>(FeedForward<Cpu>(bench.build, "e", "f", options)), bench.rows(4));
}

TEST_CASE("gradients: activations") {
  Bench bench;
  for (const auto kind : {Activation::relu, Activation::gelu, Activation::tanh})
    bench.check(ActivationLayer<Cpu>(kind), bench.rows(7));
}

TEST_CASE("gradients: dropout") {
  Bench bench;
  bench.check(Dropout<Cpu>(bench.build, 0.4), bench.rows(6));
}

TEST_CASE("gradients: layer norm") {
  Bench bench;
  bench.check(LayerNorm<Cpu>(bench.build, "norm", 9), bench.rows(9));
}

TEST_CASE("gradients: batch norm, plain and with relu") {
  Bench bench;
  bench.check(BatchNorm<Cpu>(bench.build, "plain", {.channels = 3}), bench.images(4, 3));
  bench.check(BatchNorm<Cpu>(bench.build, "relu", {.channels = 3, .relu = true}),
              bench.images(4, 3));
}

TEST_CASE("gradients: batch norm with a residual, plain and with relu, around a body") {
  Bench bench;
  const auto norm = [&](const std::string& name, bool relu) {
    return BatchNorm<Cpu>(bench.build, name, {.channels = 3, .relu = relu});
  };
  const auto layers = [&](const std::string& name) {
    Sequential<Cpu> made;
    made.add(name, Conv2d<Cpu>(bench.build, name, {.in = 3, .out = 3}));
    return made;
  };
  for (const bool relu : {false, true}) {
    const std::string name = relu ? "relu." : "plain.";
    bench.check(ResidualBatchNorm<Cpu>({}, "bn", norm(name + "alone", relu)), bench.images(4, 3));
    bench.check(ResidualBatchNorm<Cpu>(layers(name + "body"), "bn", norm(name + "identity", relu)),
                bench.images(4, 3));
    bench.check(ResidualBatchNorm<Cpu>(layers(name + "inner"), "bn", norm(name + "both", relu),
                                       layers(name + "shortcut")),
                bench.images(4, 3));
    bench.check(recompute<Cpu>(ResidualBatchNorm<Cpu>(layers(name + "again"), "bn",
                                                      norm(name + "recomputed", relu))),
                bench.images(4, 3));
  }
}

TEST_CASE("gradients: convolutions") {
  Bench bench;
  bench.check(Conv2d<Cpu>(bench.build, "one", {.in = 3, .out = 4}), bench.images(4, 3));
  bench.check(Conv2d<Cpu>(bench.build, "three",
                          {.in = 2, .out = 3, .kernel = 3, .stride = 2, .padding = 1}),
              bench.images(5, 2));
  bench.check(column_parallel_conv2d(bench.build, "column", {.in = 2, .out = 3}),
              bench.images(3, 2));
  bench.check(row_parallel_conv2d(bench.build, "row", {.in = 2, .out = 3}), bench.images(3, 2));
  // The first layer of a model gives no input gradient, but the same weight gradient.
  bench.check(Conv2d<Cpu>(bench.build, "first", {.in = 2, .out = 3, .input_gradient = false}),
              bench.images(3, 2));
}

TEST_CASE("gradients: channels gathered and scattered in a group of one") {
  Bench bench;
  bench.check(GatherChannels<Cpu>(bench.build, 4), bench.images(2, 4));
  bench.check(ScatterChannels<Cpu>(bench.build, 4), bench.images(2, 4));
}

TEST_CASE("gradients: pooling") {
  Bench bench;
  bench.check(MaxPool<Cpu>({.kernel = 3, .stride = 2, .padding = 1}), bench.images(5, 2));
  bench.check(GlobalAveragePool<Cpu>(), bench.images(4, 3));
}

TEST_CASE("gradients: embedding") {
  Bench bench;
  const EmbeddingOptions options{.entries = 11, .columns = 3, .ids = "token_ids"};
  bench.check(Embedding<Cpu>(bench.build, "plain", options), {});
  bench.check(vocabulary_parallel_embedding(bench.build, "split", options), {});
}

TEST_CASE("gradients: self-attention with dropout") {
  Bench bench;
  bench.check(SelfAttention<Cpu>(bench.build, "self",
                                 {.heads = 2, .columns = 6, .max_length = length, .dropout = 0.3}),
              bench.rows(6));
}

TEST_CASE("gradients: sequential, residual, recompute") {
  Bench bench;
  const auto body = [&](const std::string& name) {
    Sequential<Cpu> layers;
    layers.add("in", Linear<Cpu>(bench.build, name + ".in", {.in = 5, .out = 4}))
        .add("gelu", gelu<Cpu>())
        .add("dropout", Dropout<Cpu>(bench.build, 0.2))
        .add("out", Linear<Cpu>(bench.build, name + ".out", {.in = 4, .out = 5}));
    return layers;
  };
  bench.check(Residual<Cpu>(body("plain")), bench.rows(5));
  bench.check(Residual<Cpu>(body("both"), body("shortcut")), bench.rows(5));
  bench.check(recompute<Cpu>(Residual<Cpu>(body("again"))), bench.rows(5));
}

TEST_CASE("gradients: residual norm, with dropout and without, recomputed") {
  Bench bench;
  const auto layer = [&](const std::string& name, double dropout) {
    Sequential<Cpu> body;
    body.add("in", Linear<Cpu>(bench.build, name + ".in", {.in = 6, .out = 6}))
        .add("gelu", gelu<Cpu>());
    return ResidualLayerNorm<Cpu>(bench.build, name + ".norm", std::move(body),
                                  {.columns = 6, .dropout = dropout});
  };
  bench.check(layer("dropped", 0.4), bench.rows(6));
  bench.check(layer("whole", 0), bench.rows(6));
  bench.check(recompute<Cpu>(layer("again", 0.4)), bench.rows(6));
}

TEST_CASE("gradients: losses") {
  // A loss as a layer: its gradient is that of scale * sum.
  Bench bench;
  auto& dev = bench.dev;
  std::vector<std::int32_t> labels;
  for (std::int64_t row = 0; row < samples * length; ++row)
    labels.push_back(row % 5 == 4 ? -1 : static_cast<std::int32_t>(row % 7));
  bench.batch.side.emplace_back("labels", Tensor<Cpu>::from_host(dev, {samples * length}, labels));
  bench.batch.side.emplace_back("targets", random_tensor<double>(dev, {samples * length, 7}, 9));
  bench.batch.counts.emplace_back("elements", samples * length * 7);
  const StepContext<Cpu> context{.batch = &bench.batch};
  const auto check_loss = [&](auto loss) {
    auto values = bench.rows(7).to_host<double>(dev);
    const auto objective = [&] {
      Tape<Cpu> tape(context);
      auto x = Tensor<Cpu>::from_host(dev, {samples * length, 7}, values);
      Tensor<Cpu> totals(dev, DType::f64, {1, loss_fields});
      loss.forward(dev, std::move(x), tape, totals.mut());
      return 0.7 * widened(totals)[0];
    };
    Tape<Cpu> tape(context);
    Tensor<Cpu> totals(dev, DType::f64, {1, loss_fields});
    loss.forward(dev, Tensor<Cpu>::from_host(dev, {samples * length, 7}, values), tape,
                 totals.mut());
    const auto scale = Tensor<Cpu>::from_host(dev, {1}, std::vector<double>{0.7});
    const Tensor<Cpu> gradient = loss.backward(dev, scale.view(), tape);
    const auto dx = gradient.to_host<double>(dev);
    CHECK(tape.empty());
    CHECK(worst_gap(std::span(values), dx, objective) < 1e-6);
  };
  check_loss(MeanSquaredError<Cpu>());
  check_loss(ClassificationLoss<Cpu>(CrossEntropy<Cpu>(bench.build, 7, true)));
  check_loss(ClassificationLoss<Cpu>(CrossEntropy<Cpu>(bench.build, 7, false, 0.1)));
}
