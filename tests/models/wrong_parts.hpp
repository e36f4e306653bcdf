// Parts with mistakes that layouts tend to hide: a layer, a loss and a reducer.
#pragma once

#include <dhp/parallel/data.hpp>
#include <tests/support/everything.hpp>
#include <tests/support/faulty_comm.hpp>
#include <tests/support/test.hpp>

namespace tests {

/// A layer that gets a changed micro-batch.
struct WithBatch {
  std::shared_ptr<AnyLayer<Cpu>> inner;
  /// Returns the micro-batch that the inner layer gets; called before its forward pass.
  std::function<MicroBatch<Cpu>(Cpu&, const MicroBatch<Cpu>&)> seen;
  struct Pass {
    Pass(const StepContext& context, MicroBatch<Cpu> of)
        : batch(std::move(of)), tape(context, &batch) {}
    MicroBatch<Cpu> batch;
    Tape<Cpu> tape;
  };
  std::map<std::int64_t, std::unique_ptr<Pass>> passes{};  // by micro-batch

  Tensor<Cpu> forward(Cpu& dev, Tensor<Cpu> x, Tape<Cpu>& tape) {
    auto& pass = passes[tape.batch().index];
    pass = std::make_unique<Pass>(tape.context(), seen(dev, tape.batch()));
    return inner->forward(dev, std::move(x), pass->tape);
  }
  Tensor<Cpu> backward(Cpu& dev, Tensor<Cpu> dy, Tape<Cpu>& tape) {
    return inner->backward(dev, std::move(dy), passes.at(tape.batch().index)->tape);
  }
  [[nodiscard]] Shape output_shape(const Shape& in, const MicroBatch<Cpu>& batch) const {
    return inner->output_shape(in, batch);
  }
  [[nodiscard]] double flops(const Shape& in, const MicroBatch<Cpu>& batch) const {
    return inner->flops(in, batch);
  }
  void parameters(ParameterList<Cpu>& out) const { inner->parameters(out); }
};
inline void replace(AnyLayer<Cpu>& layer,
                    std::function<MicroBatch<Cpu>(Cpu&, const MicroBatch<Cpu>&)> seen) {
  const auto name = layer.name();
  layer = AnyLayer<Cpu>(
      name, WithBatch{std::make_shared<AnyLayer<Cpu>>(std::move(layer)), std::move(seen)});
}

inline Model<Cpu> right_model(ModelBuilder<Cpu>& build) {
  return everything<Cpu>(build, {.blocks = 2});
}
/// Indices of the two layers of the model's last block.
inline constexpr std::size_t attention = 4, feed_forward = 6;

/// The loss of masked words, with smoothed labels. local: each rank smooths over its own words, so targets add up to
/// more than 1. It consists of public parts: a smoothed loss, to which it adds some loss of smoothing 1.
class SmoothedWords {
 public:
  SmoothedWords(ModelBuilder<Cpu>& build, const ParameterList<Cpu>& table, bool local)
      : decoder_(build, "cls.predictions", table, {.padded = true}),
        entropy_(build, 64, Placement::words, smoothing, true),
        flat_(build, 64, Placement::words, 1, true),
        more_(local ? smoothing * (build.tensor.size() - 1) : 0) {}

  [[nodiscard]] std::vector<std::string> term_names() const { return {"masked_tokens"}; }
  void forward(Cpu& dev, Tensor<Cpu> x, Tape<Cpu>& tape, View<Cpu> totals) {
    const auto& rows = tape.batch().at("masked_rows");
    const auto& labels = tape.batch().at("masked_labels");
    Tensor<Cpu> chosen(dev, x.dtype(), {rows.count(), x.columns()});
    gather_rows(dev, x.view(), rows.view(), chosen.mut());
    tape.push_shape(x.shape());
    auto logits = decoder_.forward(dev, std::move(chosen), tape);
    Tensor<Cpu> flat(dev, DType::f64, {loss_fields});
    flat_.forward(dev, logits.share(), labels.view(), tape, flat.mut());
    entropy_.forward(dev, std::move(logits), labels.view(), tape, totals.as({loss_fields}));
    totals.data<double>()[0] += more_ * flat.to_host<double>(dev)[0];
  }
  Tensor<Cpu> backward(Cpu& dev, ConstView<Cpu> scales, Tape<Cpu>& tape) {
    const auto& labels = tape.batch().at("masked_labels");
    auto dlogits = entropy_.backward(dev, labels.view(), scales, tape);
    const auto scale =
        Tensor<Cpu>::from_host(dev, {1}, std::vector{more_ * *scales.data<double>()});
    const auto flat = flat_.backward(dev, labels.view(), scale.view(), tape);
    if (more_ != 0) add(dev, dlogits.view(), flat.view(), dlogits.mut());
    const auto chosen = decoder_.backward(dev, std::move(dlogits), tape);
    auto dx = Tensor<Cpu>::zeros(dev, chosen.dtype(), tape.pop_shape());
    scatter_add_rows(dev, chosen.view(), tape.batch().at("masked_rows").view(), dx.mut());
    return dx;
  }
  [[nodiscard]] double flops(const Shape&, const MicroBatch<Cpu>&) const { return 1; }
  void parameters(ParameterList<Cpu>& out) const { decoder_.parameters(out); }

 private:
  static constexpr double smoothing = 0.1;
  Linear<Cpu> decoder_;
  CrossEntropy<Cpu> entropy_, flat_;
  double more_;
};
inline Model<Cpu> smooth_model(ModelBuilder<Cpu>& build, bool local) {
  auto model = right_model(build);
  ParameterList<Cpu> embeddings, table;
  model.layers[0].parameters(embeddings);
  for (const auto& each : embeddings)
    if (each->spec.placement == Placement::words) table.push_back(each);
  model.loss = SmoothedWords(build, table, local);
  return model;
}

/// Divides by this replica's own tokens.
struct CountsAlone final : detail::PlainReducer<Cpu>, Replicas<Cpu> {
  struct Options {
    friend CountsAlone make_reducer(Cpu& dev, ParameterStore<Cpu>& store, Comm<Cpu> group,
                                    Options) {
      return {dev, store, std::move(group)};
    }
  };
  CountsAlone(Cpu& dev, ParameterStore<Cpu>& store, Comm<Cpu> group)
      : detail::PlainReducer<Cpu>(dev, store, std::move(group)) {}
  void count(Cpu&, Comm<Cpu>&, View<Cpu>) override {}
};

}  // namespace tests
