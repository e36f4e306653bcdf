// Tape: what one micro-batch leaves behind in its forward pass for its backward pass. A layer itself
// holds no activation, so several micro-batches can be under way in a pipeline, one tape each.
#pragma once

#include <dhp/core/rng.hpp>
#include <dhp/tensor/micro_batch.hpp>

#include <memory>
#include <utility>
#include <vector>

namespace dhp {

enum class Mode { train, eval };

/// What a layer may know of the step beside its input.
template <class Dev>
struct StepContext {
  Mode mode = Mode::train;
  std::uint64_t seed = 0;
  std::uint32_t step = 0;
  const std::uint32_t* step_at = nullptr;  ///< where not null, kernels read the step there
  const MicroBatch<Dev>* batch = nullptr;
  /// A second forward of the same micro-batch: statistics are not added again.
  bool recomputing = false;
  /// Check what every layer returns and name the first that is not finite.
  bool find_nonfinite = false;
  /// All replicas have as many micro-batches in this step: a layer may wait for theirs.
  bool equal_shares = true;
  bool same_shapes = false;  ///< of all micro-batches of all replicas

  [[nodiscard]] bool training() const { return mode == Mode::train; }
  [[nodiscard]] RandomStream random(std::uint32_t use) const { return {seed, step, use, step_at}; }
};

/// A move-only piece of work, run once or never: a weight gradient that a schedule may put off.
template <class Dev>
class Work {
 public:
  template <class Body>
  explicit Work(Body body) : body_(std::make_unique<Holder<Body>>(std::move(body))) {}
  /// What the work held is given back when it is done.
  void operator()(Dev& dev) {
    check(body_ != nullptr, "a weight gradient that was put off runs only once");
    const auto body = std::move(body_);
    body->run(dev);
  }

 private:
  struct Base {
    virtual ~Base() = default;
    virtual void run(Dev& dev) = 0;
  };
  template <class Body>
  struct Holder final : Base {
    explicit Holder(Body wrapped) : body(std::move(wrapped)) {}
    void run(Dev& dev) override { body(dev); }
    Body body;
  };
  std::unique_ptr<Base> body_;
};

/// A stack: backward pops in the reverse order of the pushes of forward. In eval mode nothing is kept.
template <class Dev>
class Tape {
 public:
  explicit Tape(StepContext<Dev> context, bool keep = true)
      : context_(context), keep_(keep && context.training()) {}

  [[nodiscard]] const StepContext<Dev>& context() const { return context_; }
  [[nodiscard]] const MicroBatch<Dev>& batch() const {
    check(context_.batch != nullptr, "this layer reads side inputs, but the step has no batch");
    return *context_.batch;
  }
  /// False when what is pushed is dropped: a layer need not compute what only its backward reads.
  [[nodiscard]] bool keeps() const { return keep_; }

  void push(Tensor<Dev> saved) {
    if (keep_) tensors_.push_back(std::move(saved));
  }
  [[nodiscard]] Tensor<Dev> pop() {
    check(!tensors_.empty(), "backward pops more than forward pushed");
    Tensor<Dev> saved = std::move(tensors_.back());
    tensors_.pop_back();
    return saved;
  }
  void push_shape(const Shape& shape) {
    if (keep_) shapes_.push_back(shape);
  }
  [[nodiscard]] Shape pop_shape() {
    check(!shapes_.empty(), "backward pops more shapes than forward pushed");
    const Shape shape = shapes_.back();
    shapes_.pop_back();
    return shape;
  }

  /// Hands over a weight gradient: work(dev) runs at once, or later when the schedule splits input and
  /// weight gradients. The work owns, or shares by count, all that it reads.
  template <class Body>
  void weight_gradient(Dev& dev, Body work) {
    if (defer_ == nullptr) work(dev);
    else defer_->push_back(Work<Dev>(std::move(work)));
  }
  /// From now on weight gradients are collected in `list`; nullptr: they run at once.
  void defer_to(std::vector<Work<Dev>>* list) { defer_ = list; }

  /// A tape for a forward pass inside the current one, done again (recompute) or not recorded.
  [[nodiscard]] Tape nested(bool keep, bool recomputing) const {
    auto context = context_;
    context.recomputing = context_.recomputing || recomputing;
    Tape inner(context, keep);
    inner.defer_ = defer_;
    return inner;
  }

  [[nodiscard]] bool empty() const { return tensors_.empty() && shapes_.empty(); }
  /// Bytes held by the tape (shared tensors are counted by each holder).
  [[nodiscard]] std::size_t size_bytes() const {
    std::size_t bytes = 0;
    for (const auto& tensor : tensors_) bytes += tensor.size_bytes();
    return bytes;
  }

 private:
  StepContext<Dev> context_;
  bool keep_;
  std::vector<Tensor<Dev>> tensors_;
  std::vector<Shape> shapes_;
  std::vector<Work<Dev>>* defer_ = nullptr;
};

}  // namespace dhp
