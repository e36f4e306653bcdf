// OnnxWeights: the weights of a saved model, whole, in fp32 and in the axis order of files. They are read as score_bert and
// --load read them: a checkpoint of any layout, or .safetensors files.
#pragma once

#include <dhp/cpu.hpp>
#include <dhp/ops/meta.hpp>
#include <dhp/optim/sgd.hpp>
#include <dhp/train/checkpoint.hpp>
#include <dhp/train/weight_file.hpp>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace examples {

class OnnxWeights {
 public:
  struct Tensor {
    std::vector<std::int64_t> shape;
    std::vector<float> values;
  };
  /// Of the whole model. Nothing is computed with it: its names and shapes are asked for.
  using Describe = std::function<dhp::Model<dhp::Meta>(dhp::ModelBuilder<dhp::Meta>&)>;

  /// path: as --load. Throws where a weight is missing, damaged or of another shape, and where all have more than so many
  /// bytes.
  OnnxWeights(const std::string& path, const Describe& describe, std::size_t most_bytes)
      : mesh_({}, {}),
        store_(dev_, parameters(describe, most_bytes), {.initialize = false}),
        optimizer_(dev_, store_, {}) {
    dhp::Checkpoint<dhp::Cpu> checkpoint(mesh_, store_, optimizer_);
    const auto loaded = checkpoint.load(dev_, path, {.only = true, .all = true});
    for (const auto& remark : loaded.remarks)
      dhp::check(remark.find(".lora_A.") == remark.npos, loaded.from,
                 " has low-rank adapters, which are not exported: add them to the weights first");
    from_ = loaded.from;
    for (auto& held : store_.pieces()) held_.emplace(held.piece.name, held);
  }

  /// What was loaded.
  [[nodiscard]] const std::string& from() const { return from_; }

  [[nodiscard]] Tensor at(const std::string& name) const {
    const auto found = held_.find(name);
    dhp::check(found != held_.end(), "this model has no weights ", name);
    const auto& piece = found->second.piece;
    const auto* const from = found->second.data.data<float>();
    Tensor made{dhp::file_shape(piece.shape, piece.file_order), {}};
    made.values.resize(static_cast<std::size_t>(piece.count()));
    dhp::for_file_runs(piece, [&](std::int64_t to, std::int64_t at, std::int64_t count) {
      std::copy_n(from + at, count, made.values.begin() + to);
    });
    return made;
  }

 private:
  using Cpu = dhp::Cpu;

  [[nodiscard]] static dhp::ParameterList<Cpu> parameters(const Describe& describe,
                                                          std::size_t most_bytes) {
    dhp::ModelBuilder<dhp::Meta> planned(dhp::Comm<dhp::Meta>{});
    const auto model = describe(planned);
    dhp::ParameterList<dhp::Meta> described;
    for (const auto& layer : model.layers) layer.parameters(described);
    model.loss.parameters(described);
    dhp::ModelBuilder<Cpu> build(dhp::Comm<Cpu>{});
    dhp::ParameterList<Cpu> made;
    std::size_t bytes = 0;
    std::set<std::string> seen;  // a tied weight is in the list twice
    for (const auto& parameter : described) {
      if (!seen.insert(parameter->spec.name).second) continue;
      auto spec = parameter->spec;
      bytes += static_cast<std::size_t>(spec.shape.count()) * sizeof(float);
      spec.frozen = !spec.buffer;  // no memory for a gradient
      made.push_back(build.parameter(std::move(spec)));
    }
    dhp::check(bytes <= most_bytes, "this model has ", bytes >> 20,
               " MiB of weights in fp32, and an ONNX file holds ", most_bytes >> 20,
               ": only smaller models are exported");
    return made;
  }

  Cpu dev_;
  dhp::Mesh<Cpu> mesh_;
  dhp::ParameterStore<Cpu> store_;
  dhp::Sgd<Cpu> optimizer_;  // without state; a checkpoint asks for one
  std::map<std::string, dhp::HeldPiece<Cpu>> held_;
  std::string from_;
};

}  // namespace examples
