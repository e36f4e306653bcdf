// Synthetic gradients (Jaderberg et al. 2017, "Decoupled neural interfaces using synthetic gradients"): a pipeline
// stage does not wait for the gradient of its output. It predicts this gradient as a linear map of the activation, and
// corrects the map when the true gradient arrives. Each backward pass then directly follows its forward pass: only
// forwards depend on another stage. Predictions are good only where the gradient is nearly linear in the activation.
#pragma once

#include <dhp/comm/comm.hpp>
#include <dhp/extra/compressed_reducer.hpp>
#include <dhp/ops/elementwise.hpp>
#include <dhp/ops/gemm.hpp>
#include <dhp/ops/reduce.hpp>
#include <dhp/parallel/pipeline.hpp>
#include <dhp/train/training_run.hpp>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <utility>

namespace dhp {

namespace detail {
/// Predicts the gradient of y [rows, C], the output of a stage, as y * weights. weights [C, C] start at zero and are
/// equal on all replicas. Each training step is one step of normalized least mean squares (Nagumo and Noda 1967).
template <class Dev>
class BoundaryPredictor final : public OutputGradients<Dev> {
 public:
  BoundaryPredictor(Dev& dev, const StageOutput<Dev>& output, Comm<Dev> replicas, DType type,
                    double rate)
      : backward_(output.backward),
        replicas_(std::move(replicas)),
        from_(output.next),
        // The stage that sends true gradients is one micro-batch behind; one more micro-batch is slack.
        max_late_(as_size(std::min(2, backward_.send_capacity()))),
        rate_(rate),
        weights_(Tensor<Dev>::persistent(dev, type, {output.shape.back(), output.shape.back()})),
        corrected_(Tensor<Dev>::persistent(dev, type, weights_.shape())),
        gradient_(Tensor<Dev>::persistent(dev, type, weights_.shape())),
        squares_(Tensor<Dev>::persistent(dev, DType::f64, {1})) {}

  /// Returns the weights after the last correction.
  [[nodiscard]] Tensor<Dev>& weights() { return corrected_; }

  /// Takes the correction of the step before, unless that step was skipped or failed.
  void begin_step(Dev& dev, ConstView<Dev> state) override {
    keep_made<Dev>(dev, state, corrected_, weights_.mut());
  }
  void sent(int micro_batch, const Tensor<Dev>& y) override {
    sent_.emplace(micro_batch, y.share());
  }
  /// Returns the predicted gradient. While more than max_late_ true gradients are outstanding, receives one.
  [[nodiscard]] Tensor<Dev> gradient(Dev& dev, int micro_batch) override {
    auto y = std::move(sent_.extract(micro_batch).mapped());
    Tensor<Dev> predicted(dev, y.dtype(), y.shape());
    gemm(dev, matrix(y.view()), weights_.view(), predicted.mut().as(matrix_shape(y.shape())));
    auto used = predicted.share();
    late_.push_back({std::move(y), std::move(predicted)});
    while (late_.size() > max_late_) receive(dev);
    return used;
  }
  /// Receives the outstanding true gradients and corrects the weights. Collective over the replicas.
  void end_step(Dev& dev) override {
    while (!late_.empty()) receive(dev);
    if (replicas_.size() > 1) {
      replicas_.all_reduce(dev, gradient_.mut()).wait();
      replicas_.all_reduce(dev, squares_.mut()).wait();
    }
    // The sum of squares is the trace of y' y. It bounds the largest eigenvalue from above, so the step is stable.
    Tensor<Dev> root(dev, DType::f64, {1});
    rsqrt(dev, squares_.view(), 1e-30, root.mut());
    scale(dev, rate_, gradient_.mut(), root.view());
    scale(dev, 1, gradient_.mut(), root.view());
    copy(dev, weights_, corrected_.mut());
    axpy(dev, -1, gradient_.view(), corrected_.mut());
    dev.fill_zero(gradient_.mut().bytes(), gradient_.size_bytes());
    dev.fill_zero(squares_.mut().bytes(), squares_.size_bytes());
  }

 private:
  struct Late {
    Tensor<Dev> y, predicted;
  };
  [[nodiscard]] static Shape matrix_shape(const Shape& shape) {
    return {shape.rows(), shape.back()};
  }
  [[nodiscard]] static ConstView<Dev> matrix(ConstView<Dev> view) {
    return view.as(matrix_shape(view.shape()));
  }

  /// Receives the oldest outstanding true gradient: gradient_ += y' (predicted - true).
  void receive(Dev& dev) {
    const auto [y, predicted] = std::move(late_.front());
    late_.pop_front();
    Tensor<Dev> error(dev, y.dtype(), y.shape());
    backward_.recv(dev, error.mut(), from_);
    scale(dev, -1, error.mut());
    axpy(dev, 1, predicted.view(), error.mut());
    gemm(dev, matrix(y.view()), matrix(error.view()), gradient_.mut(),
         {.transpose_a = true, .beta = 1});
    Tensor<Dev> squares(dev, DType::f64, {1});
    sum_of_squares(dev, y.view(), squares.mut());
    axpy(dev, 1, squares.view(), squares_.mut());
  }

  Comm<Dev> backward_, replicas_;
  int from_;
  std::size_t max_late_;  // limit of outstanding true gradients
  double rate_;
  Tensor<Dev> weights_, corrected_;
  Tensor<Dev> gradient_;             // d(half the summed squared error) / d(weights)
  Tensor<Dev> squares_;              // sum of the squares of the activations
  std::map<int, Tensor<Dev>> sent_;  // activations by micro-batch
  std::deque<Late> late_;
};
}  // namespace detail

/// Options of synthetic gradients. Use them with schedule(): each backward pass directly follows its forward pass.
struct SyntheticGradients {
  /// Step size of the predictor, above 0 and below 2. 1 is the largest value that is safe for all activations.
  double rate = 1;

  [[nodiscard]] static AnySchedule schedule() {
    return AnySchedule("of synthetic gradients", list_of_stage);
  }
  /// Makes this stage use predicted gradients from now on. Call it on all ranks before the first step. example: any
  /// micro-batch. Returns null if this stage needs no prediction.
  template <class Dev>
  detail::BoundaryPredictor<Dev>* predict_in(Dev& dev, PipelineParallel<Dev>& stage,
                                             Mesh<Dev>& mesh,
                                             const MicroBatch<Dev>& example) const {
    const auto& store = stage.store().options();
    check_fits(store, stage.options().chunks);
    auto output = stage.output(example);
    if (!output) return nullptr;
    auto predictor = std::make_unique<detail::BoundaryPredictor<Dev>>(dev, *output, mesh.data(),
                                                                      store.compute, rate);
    auto* const result = predictor.get();
    stage.take_gradients_from(std::move(predictor));
    return result;
  }
  template <class Dev>
  void predict_in(TrainingRun<Dev>& run, const MicroBatch<Dev>& example) const {
    (void)predict_in(run.device(), run.stage(), run.mesh(), example);
  }
  /// Throws Error if synthetic gradients do not work with these options.
  void check_fits(const ParameterStoreOptions& store, int chunks) const {
    check(rate > 0 && rate < 2, "a predictor of gradients with a rate of ", rate,
          " does not learn; the rate is above 0 and below 2");
    check(chunks == 1, "synthetic gradients are for one part of the model per stage, not for ",
          chunks);
    check(!store.deterministic,
          "synthetic gradients depend on where the model is cut, so exact sums cannot keep the "
          "bits; choose plain sums");
    check(
        store.sharding.stage == ZeroStage::none,
        "synthetic gradients are for replicas that hold all weights of their stage, not for ZeRO");
    check(store.compute == accumulation_type(store.compute),
          "synthetic gradients are predicted in f32 or f64, not in ", store.compute);
  }

 private:
  [[nodiscard]] static std::vector<Action> list_of_stage(int /*stage*/, int /*stages*/,
                                                         int micro_batches, int /*chunks*/) {
    std::vector<Action> list;
    for (int m = 0; m < micro_batches; ++m) {
      list.push_back({Action::Kind::forward, 0, m});
      list.push_back({Action::Kind::backward, 0, m});
    }
    return list;
  }
};

}  // namespace dhp
