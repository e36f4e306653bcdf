// OnnxWeights: the whole weights of a saved model, in fp32 and in the axis order of files. It reads the same files as
// score_bert and --load: a checkpoint of any layout, or .safetensors files.
#pragma once

#include <dhp/cpu.hpp>
#include <dhp/ops/meta.hpp>
#include <dhp/optim/sgd.hpp>
#include <dhp/train/checkpoint.hpp>
#include <dhp/train/read_piece.hpp>

#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace examples {

class OnnxWeights {
 public:
  struct Tensor {
    std::vector<std::int64_t> shape;
    std::vector<float> values;
  };
  /// Describes the whole model; only its names and shapes are used.
  using Describe = std::function<dhp::Model<dhp::Meta>(dhp::ModelBuilder<dhp::Meta>&)>;

  /// path: the argument of --load. adapter_scale: LowRankOptions::scale() of a model with adapters. Throws if a weight
  /// is missing, damaged or of another shape, or if all weights together exceed `max_bytes`.
  OnnxWeights(const std::string& path, const Describe& describe, std::size_t max_bytes,
              double adapter_scale = 0)
      : adapter_scale_(adapter_scale),
        mesh_({}, {}),
        store_(dev_, parameters(describe, max_bytes), {.initialize = false}),
        optimizer_(dev_, store_, {}) {
    dhp::Checkpoint<dhp::Cpu> checkpoint(mesh_, store_, optimizer_);
    const auto loaded = checkpoint.load(dev_, path, {.only = true, .all = true});
    from_ = loaded.from;
    for (const auto& remark : loaded.remarks) std::cerr << "warning: " << remark << "\n";
    for (auto& held : store_.pieces()) held_.emplace(held.piece.name, held);
  }

  /// Returns the path of the loaded checkpoint or file.
  [[nodiscard]] const std::string& from() const { return from_; }

  /// Returns a weight; if it has an adapter, the adapter's product is added (nn/low_rank.hpp).
  [[nodiscard]] Tensor at(const std::string& name) const {
    auto result = as_saved(name);
    constexpr std::string_view ending = ".weight";
    const auto layer = name.substr(0, name.size() - std::min(name.size(), ending.size()));
    if (!held_.contains(layer + ".lora_A.weight")) return result;
    const auto inner = as_saved(layer + ".lora_A.weight");  // [rank, in]
    const auto outer = as_saved(layer + ".lora_B.weight");  // [out, rank]
    const auto rank = static_cast<std::size_t>(inner.shape[0]);
    const auto columns = static_cast<std::size_t>(inner.shape[1]);
    for (std::size_t at = 0; at < result.values.size(); ++at) {
      double sum = 0;
      for (std::size_t k = 0; k < rank; ++k)
        sum += static_cast<double>(outer.values[at / columns * rank + k]) *
               static_cast<double>(inner.values[k * columns + at % columns]);
      result.values[at] = static_cast<float>(result.values[at] + adapter_scale_ * sum);
    }
    return result;
  }

 private:
  using Cpu = dhp::Cpu;

  [[nodiscard]] Tensor as_saved(const std::string& name) const {
    const auto found = held_.find(name);
    dhp::check(found != held_.end(), "this model has no weights ", name);
    const auto& piece = found->second.piece;
    const auto* const from = found->second.data.data<float>();
    Tensor result{dhp::detail::file_shape(piece.shape, piece.file_order), {}};
    result.values.resize(static_cast<std::size_t>(piece.count()));
    dhp::detail::for_file_runs(piece, [&](std::int64_t to, std::int64_t at, std::int64_t count) {
      std::copy_n(from + at, count, result.values.begin() + to);
    });
    return result;
  }

  [[nodiscard]] static dhp::ParameterList<Cpu> parameters(const Describe& describe,
                                                          std::size_t max_bytes) {
    dhp::ModelBuilder<dhp::Meta> planned(dhp::Comm<dhp::Meta>{});
    dhp::ModelBuilder<Cpu> build(dhp::Comm<Cpu>{});
    build.train_only([](const std::string&) { return false; });  // no memory for gradients
    dhp::ParameterList<Cpu> result;
    std::size_t bytes = 0;
    std::set<std::string> seen;  // a tied weight is in the list twice
    for (const auto& parameter : describe(planned).parameters()) {
      if (!seen.insert(parameter->spec.name).second) continue;
      const auto& spec = parameter->spec;
      bytes += static_cast<std::size_t>(spec.shape.count()) * sizeof(float);
      result.push_back(build.parameter(spec));
    }
    dhp::check(bytes <= max_bytes, "this model has ", bytes >> 20,
               " MiB of weights in fp32, and an ONNX file holds ", max_bytes >> 20,
               ": only smaller models are exported");
    return result;
  }

  double adapter_scale_;
  Cpu dev_;
  dhp::Mesh<Cpu> mesh_;
  dhp::ParameterStore<Cpu> store_;
  dhp::Sgd<Cpu> optimizer_;  // has no state, but loading a checkpoint needs an optimizer
  std::map<std::string, dhp::HeldPiece<Cpu>> held_;
  std::string from_;
};

}  // namespace examples
