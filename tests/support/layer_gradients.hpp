// The gradient check of every kind of layer, in fp64 at 1e-6, on any device.
#pragma once

#include <dhp/nn.hpp>
#include <dhp/nn/channels.hpp>
#include <tests/support/gradients.hpp>

namespace tests {

template <class Dev>
class LayerGradients {
 public:
  /// Checks each kind with a builder of its own.
  static void check_all() {
    using Layers = LayerGradients;
    for (const auto check :
         {&Layers::linear, &Layers::feed_forward, &Layers::activations, &Layers::dropout,
          &Layers::layer_norm, &Layers::batch_norm, &Layers::residual_batch_norm,
          &Layers::convolutions, &Layers::channels, &Layers::pooling, &Layers::embedding,
          &Layers::self_attention, &Layers::decoder, &Layers::adapters, &Layers::sequential,
          &Layers::residual_layer_norm, &Layers::losses})
      (Layers().*check)();
  }

 private:
  void linear() {
    check_layer(Linear<Dev>(build_, "a", {.in = 5, .out = 3}), rows(5));
    check_layer(Linear<Dev>(build_, "b", {.in = 5, .out = 3, .bias = false}), rows(5));
    const Linear<Dev> table(build_, "c", {.in = 5, .out = 5});
    for (const bool bias : {true, false}) {
      const Linear<Dev> tied(build_, bias ? "d" : "e", table.weights(), {.bias = bias});
      CHECK(tied.biases().empty() != bias);
      check_layer(tied, rows(5));
    }
  }

  void feed_forward() {
    const FeedForwardOptions options{.columns = 4, .inner = 7};
    check_layer(FeedForward<Dev>(build_, "a", "b", options), rows(4));
    check_layer(recompute<Dev>(FeedForward<Dev>(build_, "e", "f", options)), rows(4));
  }

  void activations() {
    for (const auto kind : {Activation::relu, Activation::gelu, Activation::tanh})
      check_layer(ActivationLayer<Dev>(kind), rows(7));
  }

  void dropout() {
    for (const auto columns : widths(6, 8)) check_layer(Dropout<Dev>(build_, 0.4), rows(columns));
  }

  void layer_norm() {
    for (const auto columns : widths(9, 8))
      check_layer(LayerNorm<Dev>(build_, "norm", columns), rows(columns));
  }

  void batch_norm() {
    for (const auto channels : widths(3, 4))
      for (const bool relu : {false, true})
        check_layer(BatchNorm<Dev>(build_, "norm", {.channels = channels, .relu = relu}),
                    images(4, channels));
  }

  void residual_batch_norm() {
    const auto norm = [&](const std::string& name, bool relu, std::int64_t channels = 3) {
      return BatchNorm<Dev>(build_, name, {.channels = channels, .relu = relu});
    };
    const auto layers = [&](const std::string& name) {
      Sequential<Dev> result;
      result.add(name, Conv2d<Dev>(build_, name, {.in = 3, .out = 3}));
      return result;
    };
    for (const bool relu : {false, true}) {
      const std::string name = relu ? "relu." : "plain.";
      for (const auto channels : widths(3, 4))
        check_layer(ResidualBatchNorm<Dev>({}, "bn", norm(name + "alone", relu, channels)),
                    images(4, channels));
      check_layer(
          ResidualBatchNorm<Dev>(layers(name + "body"), "bn", norm(name + "identity", relu)),
          images(4, 3));
      check_layer(ResidualBatchNorm<Dev>(layers(name + "inner"), "bn", norm(name + "both", relu),
                                         layers(name + "shortcut")),
                  images(4, 3));
      check_layer(recompute<Dev>(ResidualBatchNorm<Dev>(layers(name + "again"), "bn",
                                                        norm(name + "recomputed", relu))),
                  images(4, 3));
    }
  }

  void convolutions() {
    check_layer(Conv2d<Dev>(build_, "one", {.in = 3, .out = 4}), images(4, 3));
    check_layer(
        Conv2d<Dev>(build_, "three", {.in = 2, .out = 3, .kernel = 3, .stride = 2, .padding = 1}),
        images(5, 2));
    // The first layer of a model gives no input gradient, but the same weight gradient.
    check_layer(Conv2d<Dev>(build_, "first", {.in = 2, .out = 3, .input_gradient = false}),
                images(3, 2));
  }

  void channels() {
    check_layer(GatherChannels<Dev>(build_, 4, Placement::columns), images(2, 4));
    check_layer(ScatterChannels<Dev>(build_, 4, Placement::rows), images(2, 4));
  }

  void pooling() {
    for (const auto channels : widths(2, 3))
      check_layer(MaxPool<Dev>({.kernel = 3, .stride = 2, .padding = 1}), images(5, channels));
    for (const auto channels : widths(3, 4))
      check_layer(GlobalAveragePool<Dev>(), images(4, channels));
  }

  void embedding() {
    for (const auto columns : widths(3, 4)) {
      const EmbeddingOptions options{.entries = 11, .columns = columns, .ids = "token_ids"};
      check_layer(Embedding<Dev>(build_, "plain", options), {});
    }
  }

  void self_attention() {
    check_layer(
        SelfAttention<Dev>(build_, "self",
                           {.heads = 2, .columns = 6, .max_length = length, .dropout = 0.3}),
        rows(6));
  }

  /// The layers of a decoder: attention with one matrix for q, k and v or separate ones, pre-norm residuals, SwiGLU.
  void decoder() {
    SelfAttentionOptions options{.heads = 4,
                                 .columns = 16,
                                 .max_length = length,
                                 .dropout = 0.3,
                                 .causal = true,
                                 .rotary_base = 9};
    check_layer(SelfAttention<Dev>(build_, "one", options), rows(16));
    options.key_heads = 2;
    options.bias = false;
    Sequential<Dev> body;
    body.add("norm", RmsNorm<Dev>(build_, "norm", 16))
        .add("self", SelfAttention<Dev>(build_, "shared", options))
        .add("out", Linear<Dev>(build_, "out", {.in = 16, .out = 16, .bias = false}));
    check_layer(recompute<Dev>(Residual<Dev>(std::move(body))), rows(16));
    for (const bool bias : {false, true}) {
      const std::string name = bias ? "biased" : "plain";
      check_layer(GatedFeedForward<Dev>(build_, name + ".gate", name + ".up", name + ".down",
                                        {.columns = 4, .inner = 7, .bias = bias}),
                  rows(4));
    }
    for (const auto columns : widths(9, 8))
      check_layer(RmsNorm<Dev>(build_, "rms", columns), rows(columns));
  }

  void adapters() {
    adapters_of(false, 0.3);
    adapters_of(true, 0);
  }
  /// frozen: only the adapters are trained, not the layers' own weights.
  void adapters_of(bool frozen, double dropout) {
    ModelBuilder<Dev> build({});
    if (frozen)
      build.train_only([](const std::string& name) { return name.find("lora") != name.npos; });
    build.adapt({.layers = {"a", frozen ? "first" : "second", "query", "value"},
                 .rank = 2,
                 .alpha = 3,
                 .dropout = dropout});
    check_layer(Linear<Dev>(build, "layer.a", {.in = 5, .out = 3}), rows(5));
    check_layer(FeedForward<Dev>(build, "first", "second", {.columns = 4, .inner = 7}), rows(4));
    check_layer(
        SelfAttention<Dev>(build, "self",
                           {.heads = 2, .columns = 6, .max_length = length, .dropout = dropout}),
        rows(6));
    check_layer(
        SelfAttention<Dev>(
            build, "shared",
            {.heads = 2, .columns = 4, .max_length = length, .key_heads = 1, .causal = true}),
        rows(4));
    check_layer(GatedFeedForward<Dev>(build, "layer.a", "up", "second", {.columns = 4, .inner = 7}),
                rows(4));
    build.check_described();
  }

  void sequential() {
    const auto body = [&](const std::string& name) {
      Sequential<Dev> layers;
      layers.add("in", Linear<Dev>(build_, name + ".in", {.in = 5, .out = 4}))
          .add("gelu", gelu<Dev>())
          .add("dropout", Dropout<Dev>(build_, 0.2))
          .add("out", Linear<Dev>(build_, name + ".out", {.in = 4, .out = 5}));
      return layers;
    };
    check_layer(Residual<Dev>(body("plain")), rows(5));
    check_layer(Residual<Dev>(body("both"), body("shortcut")), rows(5));
    check_layer(recompute<Dev>(Residual<Dev>(body("again"))), rows(5));
    // A convolution's backward fuses sums of the norm before it, unless others read the norm's output: here the sum.
    Sequential<Dev> conv, normed;
    conv.add("conv", Conv2d<Dev>(build_, "conv", {.in = 3, .out = 3}));
    normed.add("norm", BatchNorm<Dev>(build_, "norm", {.channels = 3, .relu = true}))
        .add("sum", Residual<Dev>(std::move(conv)));
    check_layer(std::move(normed), images(4, 3));
  }

  void residual_layer_norm() {
    const auto layer = [&](const std::string& name, double dropout) {
      Sequential<Dev> body;
      body.add("in", Linear<Dev>(build_, name + ".in", {.in = 6, .out = 6}))
          .add("gelu", gelu<Dev>());
      return ResidualLayerNorm<Dev>(build_, name + ".norm", std::move(body),
                                    {.columns = 6, .dropout = dropout});
    };
    check_layer(layer("dropped", 0.4), rows(6));
    check_layer(layer("whole", 0), rows(6));
    check_layer(recompute<Dev>(layer("again", 0.4)), rows(6));
  }

  void losses() {
    std::vector<std::int32_t> labels;
    for (std::int64_t row = 0; row < samples * length; ++row)
      labels.push_back(row % 5 == 4 ? -1 : static_cast<std::int32_t>(row % 7));
    const Shape shape{samples * length, 7};
    batch_.side.emplace_back("labels", Tensor<Dev>::from_host(dev_, {samples * length}, labels));
    batch_.side.emplace_back("targets",
                             Tensor<Dev>::from_host(dev_, shape, random_doubles(shape, 9)));
    batch_.counts.emplace_back("elements", shape.count());
    check_loss(MeanSquaredError<Dev>(), 7);
    check_loss(ClassificationLoss<Dev>(CrossEntropy<Dev>(build_, 7)), 7);
    for (const auto classes : widths(7, 8))
      check_loss(
          ClassificationLoss<Dev>(CrossEntropy<Dev>(build_, classes, Placement::replicated, 0.1)),
          classes);
  }

  static constexpr std::int64_t samples = 3;
  static constexpr std::int64_t length = 4;

  /// Numbers of columns or channels: kernels that read several at once take another path for a remainder.
  [[nodiscard]] static std::vector<std::int64_t> widths(std::int64_t one, std::int64_t other) {
    if constexpr (requires { Dev::runs_kernels; }) return {one, other};
    else return {one};
  }
  [[nodiscard]] Tensor<Dev> rows(std::int64_t columns) {
    const Shape shape{samples * length, columns};
    return Tensor<Dev>::from_host(dev_, shape, random_doubles(shape, 1));
  }
  [[nodiscard]] Tensor<Dev> images(std::int64_t side, std::int64_t channels) {
    const Shape shape{samples, side, side, channels};
    return Tensor<Dev>::from_host(dev_, shape, random_doubles(shape, 2));
  }
  template <class L>
  void check_layer(L layer, const Tensor<Dev>& x) {
    check_layer_gradients(dev_, layer, x, batch_);
  }
  template <class L>
  void check_loss(L loss, std::int64_t columns) {
    CHECK(check_loss_gradients(dev_, loss, rows(columns), batch_).worst < 1e-6);
  }

  Dev dev_;
  ModelBuilder<Dev> build_{Comm<Dev>{}};
  MicroBatch<Dev> batch_ = token_batch(dev_, samples, length, 11);
};

}  // namespace tests
