// ResNet v1.5 (He et al. 2015, with the stride of a bottleneck on its 3x3 convolution), assembled from dhp's layers,
// with torchvision's names.
#pragma once

#include <dhp/nn/batch_norm.hpp>
#include <dhp/nn/channels.hpp>
#include <dhp/nn/conv2d.hpp>
#include <dhp/nn/cross_entropy.hpp>
#include <dhp/nn/linear.hpp>
#include <dhp/nn/pool.hpp>
#include <dhp/nn/recompute.hpp>
#include <dhp/nn/residual_batch_norm.hpp>
#include <dhp/nn/sequential.hpp>

#include <array>
#include <string>

namespace examples {

struct ResNetConfig {
  int depth = 50;           ///< 14, 26, 50, 101 or 152: bottlenecks in four groups
  std::int64_t width = 64;  ///< channels of the stem
  std::int64_t image_size = 224;
  std::int64_t image_channels = 3;
  std::int64_t classes = 1000;
  int stem_stride = 1;           ///< stride of the 3x3 stem for images up to 64 pixels
  bool zero_init_gamma = false;  ///< makes residual blocks start as the identity
  bool synchronized_batch_norm = false;
  double label_smoothing = 0;
  bool recompute = false;  ///< keeps only blocks' inputs; backward recomputes the rest

  [[nodiscard]] bool small_images() const { return image_size <= 64; }
  [[nodiscard]] std::int64_t last_channels() const { return 32 * width; }
};

[[nodiscard]] inline std::array<int, 4> resnet_blocks(int depth) {
  switch (depth) {
    case 14: return {1, 1, 1, 1};
    case 26: return {2, 2, 2, 2};
    case 50: return {3, 4, 6, 3};
    case 101: return {3, 4, 23, 3};
    case 152: return {3, 8, 36, 3};
    default:
      dhp::fail("no ResNet of depth ", depth,
                " is made of bottlenecks; choose 14, 26, 50, 101 or 152");
  }
}

/// Calls visit(name, in, inner, stride) for each bottleneck, from the first to the last. It makes 4 * inner channels of
/// `in` channels.
void each_bottleneck(const ResNetConfig& config, const auto& visit) {
  auto in = config.width;
  const auto groups = resnet_blocks(config.depth);
  for (int group = 0; group < 4; ++group) {
    const auto inner = config.width << group;
    for (int block = 0; block < groups[static_cast<std::size_t>(group)]; ++block) {
      visit(dhp::concat("layer", group + 1, ".", block), in, inner,
            block == 0 && group > 0 ? 2 : 1);
      in = 4 * inner;
    }
  }
}

/// Returns the multiplications and additions in convolutions and the last product, for one image's forward pass.
[[nodiscard]] inline double resnet_forward_flop(const ResNetConfig& config) {
  double flop = 0;
  const auto conv = [&](std::int64_t size, int kernel, int stride, std::int64_t in,
                        std::int64_t out) {
    const auto after = (size + kernel / 2 * 2 - kernel) / stride + 1;
    flop += 2.0 * static_cast<double>(after * after * kernel * kernel * in * out);
    return after;
  };
  const bool small = config.small_images();
  auto size = conv(config.image_size, small ? 3 : 7, small ? config.stem_stride : 2,
                   config.image_channels, config.width);
  if (!small) size = (size - 1) / 2 + 1;  // max-pool
  each_bottleneck(config, [&](const auto&, std::int64_t in, std::int64_t inner, int stride) {
    if (stride != 1 || in != 4 * inner) (void)conv(size, 1, stride, in, 4 * inner);
    (void)conv(size, 1, 1, in, inner);
    size = conv(size, 3, stride, inner, inner);
    (void)conv(size, 1, 1, inner, 4 * inner);
  });
  return flop + 2.0 * static_cast<double>(config.last_channels() * config.classes);
}

/// Returns a ResNet's placement on the tensor axis, which splits the inner channels of a bottleneck.
[[nodiscard]] inline dhp::Placements resnet_placements() {
  return {{"layer*.{conv1.weight,bn1.*,conv2.weight,bn2.*}", dhp::Placement::columns},
          {"layer*.{conv3,downsample.0}.weight", dhp::Placement::rows},
          {"fc.*", dhp::Placement::columns},
          {"*", dhp::Placement::replicated}};
}

/// Describes one ResNet. It is a class only to hold build and config.
template <class Dev>
class ResNetBuilder {
 public:
  ResNetBuilder(dhp::ModelBuilder<Dev>& build, const ResNetConfig& config)
      : build_(build), config_(config) {}

  [[nodiscard]] dhp::Model<Dev> model() {
    build_.place(resnet_placements(), groups_divide());
    dhp::Model<Dev> model;
    model.add("stem", stem());
    each_bottleneck(config_, [&](const auto& name, auto in, auto inner, int stride) {
      auto result = bottleneck(name, in, inner, stride);
      if (config_.recompute) model.add(name, dhp::recompute<Dev>(std::move(result)));
      else model.add(name, std::move(result));
    });
    const auto in = config_.last_channels();
    dhp::Sequential<Dev> head;
    head.add("average", dhp::GlobalAveragePool<Dev>());
    head.add("fc", dhp::Linear<Dev>(build_, "fc",
                                    {.in = in,
                                     .out = config_.classes,
                                     .weight_init = dhp::linear_uniform(in),
                                     .bias_init = dhp::linear_uniform(in)}));
    model.add("head", std::move(head));
    model.loss = dhp::ClassificationLoss<Dev>(dhp::CrossEntropy<Dev>(
        build_, config_.classes, build_.placement("fc.weight"), config_.label_smoothing));
    return model;
  }

 private:
  /// Returns the largest number of pieces that divides the channels of all layers and does not exceed the classes.
  [[nodiscard]] std::int64_t groups_divide() const {
    auto most = config_.width;
    while (config_.width % most != 0 || most > config_.classes) --most;
    return most;
  }
  [[nodiscard]] dhp::BatchNorm<Dev> norm(const std::string& name, std::int64_t channels, bool relu,
                                         bool last_of_block = false) {
    return dhp::BatchNorm<Dev>(build_, name,
                               {.channels = channels,
                                .relu = relu,
                                .gamma_init = last_of_block && config_.zero_init_gamma ? 0.0 : 1.0,
                                .synchronized = config_.synchronized_batch_norm});
  }

  /// Asks a convolution for its output's column sums. Batch norm reuses them, unless it needs the sums of all replicas.
  [[nodiscard]] dhp::Conv2dOptions before_norm(dhp::Conv2dOptions options) const {
    options.column_sums = !config_.synchronized_batch_norm;
    return options;
  }

  [[nodiscard]] dhp::Sequential<Dev> stem() {
    const bool small = config_.small_images();
    dhp::Sequential<Dev> layers;
    layers.add("conv1", dhp::Conv2d<Dev>(build_, "conv1",
                                         before_norm({.in = config_.image_channels,
                                                      .out = config_.width,
                                                      .kernel = small ? 3 : 7,
                                                      .stride = small ? config_.stem_stride : 2,
                                                      .padding = small ? 1 : 3,
                                                      .input_gradient = false})));
    layers.add("bn1", norm("bn1", config_.width, true));
    if (!small) layers.add("maxpool", dhp::MaxPool<Dev>({.kernel = 3, .stride = 2, .padding = 1}));
    return layers;
  }

  /// Returns relu(x + norm(body(x))), or relu(downsample(x) + norm(body(x))) if shapes differ.
  [[nodiscard]] dhp::ResidualBatchNorm<Dev> bottleneck(const std::string& name, std::int64_t in,
                                                       std::int64_t inner, int stride) {
    const std::int64_t out = 4 * inner;
    dhp::Sequential<Dev> body;
    body.add("conv1",
             dhp::Conv2d<Dev>(build_, name + ".conv1", before_norm({.in = in, .out = inner})));
    body.add("bn1", norm(name + ".bn1", inner, true));
    body.add("gather",
             dhp::GatherChannels<Dev>(build_, inner, build_.placement(name + ".conv1.weight")));
    body.add(
        "conv2",
        dhp::Conv2d<Dev>(
            build_, name + ".conv2",
            before_norm({.in = inner, .out = inner, .kernel = 3, .stride = stride, .padding = 1})));
    body.add("bn2", norm(name + ".bn2", inner, true));
    body.add("conv3",
             dhp::Conv2d<Dev>(build_, name + ".conv3", before_norm({.in = inner, .out = out})));
    auto last = norm(name + ".bn3", out, true, true);

    dhp::Sequential<Dev> shortcut;
    if (stride != 1 || in != out) {
      const auto down = name + ".downsample.0";
      shortcut.add("scatter",
                   dhp::ScatterChannels<Dev>(build_, in, build_.placement(down + ".weight")));
      shortcut.add(
          "downsample.0",
          dhp::Conv2d<Dev>(build_, down, before_norm({.in = in, .out = out, .stride = stride})));
      shortcut.add("downsample.1", norm(name + ".downsample.1", out, false));
    }
    return {std::move(body), "bn3", std::move(last), std::move(shortcut)};
  }

  dhp::ModelBuilder<Dev>& build_;
  const ResNetConfig& config_;
};

/// Builds the whole model. A pipeline can cut it between the stem, the bottlenecks and the head.
template <class Dev>
[[nodiscard]] dhp::Model<Dev> resnet(dhp::ModelBuilder<Dev>& build, const ResNetConfig& config) {
  dhp::check(build.tensor.size() <= config.width, "resnet: ", config.width,
             " channels cannot be split over a tensor axis of ", build.tensor.size(),
             "; choose a smaller --tensor-parallel or a larger --width");
  dhp::check(build.tensor.size() <= config.classes, "resnet: ", config.classes,
             " classes cannot be split over a tensor axis of ", build.tensor.size(),
             "; choose a smaller --tensor-parallel");
  return ResNetBuilder<Dev>(build, config).model();
}

}  // namespace examples
