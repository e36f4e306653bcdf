// ResNet as an ONNX graph, layer by layer as in resnet50/model.hpp, but with channels before height and width.
#pragma once

#include "../data/saved_resnet.hpp"
#include "layers.hpp"

#include <string>
#include <vector>

namespace examples {

class OnnxResNet : public OnnxLayers {
 public:
  /// Keeps references to its arguments.
  OnnxResNet(const OnnxWeights& weights, const SavedResNet& saved)
      : OnnxLayers("resnet", weights), saved_(saved), config_(saved.config) {}

  /// Builds the graph from pixels in [0, 1] to logits.
  void build() {
    auto x = float_input("pixels", {"batch", config_.image_channels, "height", "width"});
    x = stem(normalized(x));
    each_bottleneck(config_, [&](const auto& name, auto in, auto inner, int stride) {
      x = bottleneck(name, x, stride, in != 4 * inner);
    });
    const auto pooled = node("Flatten", {node("GlobalAveragePool", {x})});
    output(linear("fc", pooled), "logits", {"batch", config_.classes});
  }

 private:
  /// Normalizes by the mean and the deviation of the training images.
  Value normalized(const Value& pixels) {
    const auto channels = [&](const std::string& name, const std::vector<double>& values) {
      const std::vector<float> rounded(values.begin(), values.end());
      return floats(name, {1, config_.image_channels, 1, 1}, rounded);
    };
    const auto centered = node("Sub", {pixels, channels("image_mean", saved_.mean)});
    return node("Div", {centered, channels("image_std", saved_.deviation)});
  }

  Value stem(const Value& x) {
    const bool small = config_.small_images();
    const auto result = conv("conv1", x,
                             {.kernel = small ? 3 : 7,
                              .stride = small ? config_.stem_stride : 2,
                              .padding = small ? 1 : 3});
    const auto y = relu(batch_norm("bn1", result));
    return small ? y : max_pool(y, {.kernel = 3, .stride = 2, .padding = 1});
  }

  Value bottleneck(const std::string& name, const Value& x, int stride, bool other_channels) {
    const auto normed = [&](const std::string& number, const Value& of, Window window) {
      return batch_norm(name + ".bn" + number, conv(name + ".conv" + number, of, window));
    };
    auto y = relu(normed("1", x, {}));
    y = relu(normed("2", y, {.kernel = 3, .stride = stride, .padding = 1}));
    y = normed("3", y, {});
    auto shortcut = x;
    if (stride != 1 || other_channels)
      shortcut =
          batch_norm(name + ".downsample.1", conv(name + ".downsample.0", x, {.stride = stride}));
    return relu(add(y, shortcut));
  }

  const SavedResNet& saved_;
  const ResNetConfig& config_;
};

}  // namespace examples
