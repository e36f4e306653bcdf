// OnnxLayers: the layers of dhp's models as ONNX operators, with the saved weights of the same names.
#pragma once

#include <dhp/nn/batch_norm.hpp>

#include "graph.hpp"
#include "weights.hpp"

#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace examples {

class OnnxLayers : public OnnxGraph {
 public:
  /// Keeps a reference to the weights.
  OnnxLayers(const std::string& name, const OnnxWeights& weights)
      : OnnxGraph(name), weights_(weights) {}

  /// Returns a saved tensor, unchanged.
  Value weights(const std::string& name) {
    if (has(name)) return name;
    const auto tensor = weights_.at(name);
    return floats(name, tensor.shape, tensor.values);
  }

  /// y = x W^T + b for x [..., in] and the weight W [out, in], which the ONNX file holds as [in, out].
  Value linear(const std::string& name, const Value& x, bool bias = true) {
    const auto tensor = weights_.at(name + ".weight");
    const auto out = tensor.shape[0], in = tensor.shape[1];
    std::vector<float> turned(tensor.values.size());
    for (std::int64_t row = 0; row < out; ++row)
      for (std::int64_t column = 0; column < in; ++column)
        turned[static_cast<std::size_t>(column * out + row)] =
            tensor.values[static_cast<std::size_t>(row * in + column)];
    const auto weight = floats(name + ".weight", {in, out}, turned);
    const auto y = node("MatMul", {x, weight});
    return bias ? add(y, weights(name + ".bias")) : y;
  }
  /// Looks up rows of a table [entries, columns] by ids [...]; y [..., columns].
  Value embedding(const std::string& name, const Value& ids) {
    return node("Gather", {weights(name + ".weight"), ids});
  }
  /// Normalizes over the last dim.
  Value layer_norm(const std::string& name, const Value& x, double epsilon) {
    return node("LayerNormalization", {x, weights(name + ".weight"), weights(name + ".bias")},
                {{"axis", std::int64_t{-1}}, {"epsilon", static_cast<float>(epsilon)}});
  }
  /// Normalizes over the last dim.
  Value rms_norm(const std::string& name, const Value& x, double epsilon) {
    const auto mean =
        node("ReduceMean", {node("Mul", {x, x})}, {{"axes", std::vector<std::int64_t>{-1}}});
    const auto root = node("Sqrt", {add(mean, scalar(static_cast<float>(epsilon)))});
    return node("Mul", {node("Div", {x, root}), weights(name + ".weight")});
  }
  /// Returns x Phi(x), by the error function.
  Value gelu(const Value& x) {
    const auto scaled = node("Div", {x, scalar(std::sqrt(2.0F))});
    const auto twice = node("Add", {node("Erf", {scaled}), scalar(1)});
    return node("Mul", {node("Mul", {x, twice}), scalar(0.5F)});
  }

  /// Returns x Phi(x) in the tanh form.
  Value gelu_tanh(const Value& x) {
    const auto cube = node("Mul", {node("Mul", {x, x}), x});
    const auto sum = add(x, node("Mul", {cube, scalar(0.044715F)}));
    const auto open = tanh(node("Mul", {sum, scalar(0.7978845608F)}));
    const auto twice = add(open, scalar(1));
    return node("Mul", {node("Mul", {x, twice}), scalar(0.5F)});
  }

  struct Attention {
    std::int64_t heads = 1;
    std::int64_t columns = 0;
    std::int64_t key_heads = 0;  ///< 0: as many as heads
    bool bias = true;            ///< the projections have biases
    std::array<std::string, 3> names{"query", "key", "value"};
    Value cosines{}, sines{};  ///< rotary positions [sequence, 1, columns / heads]; or none
  };
  /// Returns softmax(q k^T / sqrt(d) + bias) v for each head, for x [batch, sequence, columns]; bias broadcasts to
  /// [batch, heads, queries, keys].
  Value self_attention(const std::string& name, const Value& x, const Value& bias,
                       const Attention& of) {
    const auto width = of.columns / of.heads;
    const auto sharing = of.key_heads == 0 ? 1 : of.heads / of.key_heads;
    const auto heads = integers({0, 0, of.heads, width});
    const auto part = [&](std::size_t which, std::vector<std::int64_t> order) {
      auto rows = linear(name + "." + of.names[which], x, of.bias);
      if (which > 0 && sharing > 1) {
        const auto apart = node("Reshape", {rows, integers({0, 0, of.key_heads, 1, width})});
        rows = node("Expand", {apart, integers({1, 1, 1, sharing, 1})});
      }
      rows = node("Reshape", {rows, heads});
      if (which < 2 && !of.cosines.empty()) rows = rotated(rows, width, of);
      return node("Transpose", {rows}, {{"perm", std::move(order)}});
    };
    const auto query = part(0, {0, 2, 1, 3}), value = part(2, {0, 2, 1, 3});
    const auto key = part(1, {0, 2, 3, 1});  // [batch, heads, width, sequence]
    const auto root = scalar(std::sqrt(static_cast<float>(width)));
    const auto scores = node("Div", {node("MatMul", {query, key}), root});
    const auto shares =
        node("Softmax", {node("Add", {scores, bias})}, {{"axis", std::int64_t{-1}}});
    const auto mixed = node("Transpose", {node("MatMul", {shares, value})},
                            {{"perm", std::vector<std::int64_t>{0, 2, 1, 3}}});
    return node("Reshape", {mixed, integers({0, 0, of.columns})});
  }

  struct Window {
    std::int64_t kernel = 1;
    std::int64_t stride = 1;
    std::int64_t padding = 0;

    [[nodiscard]] std::map<std::string, Attribute> attributes() const {
      const auto both = [](std::int64_t value) { return std::vector<std::int64_t>(2, value); };
      return {{"kernel_shape", both(kernel)},
              {"strides", both(stride)},
              {"pads", std::vector<std::int64_t>(4, padding)}};
    }
  };
  /// A convolution without bias, for x [batch, channels, height, width].
  Value conv(const std::string& name, const Value& x, Window window) {
    return node("Conv", {x, weights(name + ".weight")}, window.attributes());
  }
  Value max_pool(const Value& x, Window window) {
    return node("MaxPool", {x}, window.attributes());
  }
  /// Normalizes by the running statistics.
  Value batch_norm(const std::string& name, const Value& x) {
    std::vector<Value> inputs{x};
    for (const auto* const part : {".weight", ".bias", ".running_mean", ".running_var"})
      inputs.push_back(weights(name + part));
    return node("BatchNormalization", inputs,
                {{"epsilon", static_cast<float>(dhp::BatchNormOptions{}.epsilon)}});
  }
  Value relu(const Value& x) { return node("Relu", {x}); }
  Value tanh(const Value& x) { return node("Tanh", {x}); }
  Value add(const Value& a, const Value& b) { return node("Add", {a, b}); }

 private:
  /// Applies rotary positions to x [batch, sequence, heads, width].
  Value rotated(const Value& x, std::int64_t width, const Attention& of) {
    const auto half = [&](std::int64_t first) {
      return node("Slice", {x, integers({first}), integers({first + width / 2}), integers({3})});
    };
    const auto turned =
        node("Concat", {node("Neg", {half(width / 2)}), half(0)}, {{"axis", std::int64_t{-1}}});
    return add(node("Mul", {x, of.cosines}), node("Mul", {turned, of.sines}));
  }

  const OnnxWeights& weights_;
};

}  // namespace examples
