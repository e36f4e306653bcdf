// A line of a --trace-values file: one layer's result for one micro-batch. Needs nlohmann/json.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <tuple>

namespace examples {

/// One tensor of one micro-batch.
struct TracedValue {
  std::int64_t step = 0;         ///< counted from 1
  std::int64_t micro_batch = 0;  ///< index in the global batch
  int layer = 0;                 ///< index in the model; the loss comes after the last layer
  std::string name{};            ///< name of the layer
  bool gradient = false;         ///< gradient of the layer's input; otherwise the layer's output
  int tensor_rank = 0;           ///< rank on the tensor axis, since ranks hold parts of some values
  std::string shape{};
  std::string fingerprint{};
  double root_mean_square = 0;

  /// Sorts values in the order of computation: all outputs, then the gradients from the last layer to the first.
  using Order = std::tuple<std::int64_t, bool, std::int64_t, int, int>;
  [[nodiscard]] Order order() const {
    return {step, gradient, micro_batch, gradient ? -layer : layer, tensor_rank};
  }
  void pass(auto& fields) {
    fields(step, micro_batch, layer, name, gradient, tensor_rank, shape, fingerprint,
           root_mean_square);
  }
  [[nodiscard]] const char* value() const { return gradient ? "input gradient" : "output"; }
  [[nodiscard]] nlohmann::ordered_json to_json() const {
    return {{"step", step},   {"micro_batch", micro_batch}, {"layer", layer},
            {"name", name},   {"value", value()},           {"tensor_rank", tensor_rank},
            {"shape", shape}, {"fingerprint", fingerprint}, {"root_mean_square", root_mean_square}};
  }
  /// Throws the exceptions of nlohmann/json.
  [[nodiscard]] static TracedValue of_json(const nlohmann::ordered_json& json) {
    return {.step = json.at("step"),
            .micro_batch = json.at("micro_batch"),
            .layer = json.at("layer"),
            .name = json.at("name"),
            .gradient = json.at("value") == "input gradient",
            .tensor_rank = json.at("tensor_rank"),
            .shape = json.at("shape"),
            .fingerprint = json.at("fingerprint"),
            .root_mean_square = json.at("root_mean_square").is_number()
                                    ? json.at("root_mean_square").get<double>()
                                    : std::nan("")};
  }
};

}  // namespace examples
