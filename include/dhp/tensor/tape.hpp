// Tape: the tensors that the forward pass of one micro-batch saves for its backward pass. Layers store no activations,
// so a pipeline can have several micro-batches in flight, with one tape each.
#pragma once

#include <dhp/core/function_ref.hpp>
#include <dhp/core/rng.hpp>
#include <dhp/tensor/micro_batch.hpp>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace dhp {
namespace detail {
struct FirstNonFinite;
}  // namespace detail

/// Settings that all micro-batches of a replica share in a step.
struct StepContext {
  enum class Mode { train, eval };
  Mode mode = Mode::train;
  std::uint64_t seed = 0;
  std::uint32_t step = 1;  ///< number of the step, counted from 1
  /// If not null, kernels read RandomStream::series from this address.
  const std::uint32_t* series_at = nullptr;
  /// If not null, layers check their results and write the first one that is not finite here.
  detail::FirstNonFinite* first_nonfinite = nullptr;
  /// Whether all replicas have equally many micro-batches, so that a layer may wait for other replicas.
  bool equal_shares = true;
  bool same_shapes = false;  ///< the micro-batches of all replicas have the same shape

  [[nodiscard]] bool training() const { return mode == Mode::train; }
  [[nodiscard]] RandomStream random(std::uint32_t use) const {
    return {seed, step - 1, use, series_at};
  }
};

namespace detail {
/// A deferred weight gradient. It is move-only and runs at most once.
template <class Dev>
class DeferredGradient {
 public:
  template <class Body>
  explicit DeferredGradient(Body body) : body_(new Holder<Body>(std::move(body))) {}
  /// Computes the gradient and releases the captured tensors on return.
  void operator()(Dev& dev) {
    check(body_ != nullptr, "a deferred weight gradient runs only once");
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
}  // namespace detail

/// A stack: the backward pass pops in the reverse order of the forward pass's pushes. In eval mode pushes are dropped.
template <class Dev>
class Tape {
 public:
  /// batch: provides the side inputs and must outlive the tape.
  explicit Tape(StepContext context, const MicroBatch<Dev>* batch = nullptr)
      : context_(context), batch_(batch), keep_(context.training()) {}

  [[nodiscard]] const StepContext& context() const { return context_; }
  [[nodiscard]] const MicroBatch<Dev>& batch() const {
    check(batch_ != nullptr, "this layer reads side inputs, but the tape has no batch");
    return *batch_;
  }
  [[nodiscard]] int row_groups() const { return batch_ == nullptr ? 0 : batch_->row_groups; }
  /// Returns true in a recomputed forward pass, which must not add its statistics a second time.
  [[nodiscard]] bool recomputing() const { return recomputing_; }
  /// Returns false if pushes are dropped, so that a layer can skip saving.
  [[nodiscard]] bool keeps() const { return keep_; }

  void push(Tensor<Dev> saved) {
    if (keep_) tensors_.push_back(std::move(saved));
  }
  [[nodiscard]] Tensor<Dev> pop() {
    check_above(tensors_.size(), bottom_.tensors);
    Tensor<Dev> saved = std::move(tensors_.back());
    tensors_.pop_back();
    return saved;
  }
  void push_shape(const Shape& shape) {
    if (keep_) shapes_.push_back(shape);
  }
  [[nodiscard]] Shape pop_shape() {
    check_above(shapes_.size(), bottom_.shapes);
    const Shape shape = shapes_.back();
    shapes_.pop_back();
    return shape;
  }

  /// The sizes of the tape's two stacks.
  struct Mark {
    std::size_t tensors = 0, shapes = 0;
  };
  [[nodiscard]] Mark mark() const { return {tensors_.size(), shapes_.size()}; }
  /// Ends the forward pass of a part of the model (a layer, the loss). began: the mark at its beginning.
  void end_of_forward(Mark began) {
    if (keep_) marks_.push_back(began);
  }
  /// Runs body(), the backward pass of `part`, which must pop exactly what the part's forward pass pushed.
  Tensor<Dev> backward_of(const std::string& part, FunctionRef<Tensor<Dev>()> body) {
    check(!marks_.empty(), "the backward pass of layer ", part, " has no forward pass on its tape");
    const auto outer_bottom = std::exchange(bottom_, marks_.back());
    const auto* const outer_part = std::exchange(part_, &part);
    marks_.pop_back();
    auto result = body();
    check_popped(bottom_);
    bottom_ = outer_bottom;
    part_ = outer_part;
    return result;
  }

  /// Throws Error unless everything above the mark was popped.
  void check_popped(Mark bottom) const {
    if (tensors_.size() != bottom.tensors || shapes_.size() != bottom.shapes)
      fail(part_name(), " pushes more on the tape in its forward pass than its backward pass pops");
  }

  /// Runs work(dev) immediately, or later if the schedule separates input and weight gradients. `work` must own
  /// everything that it reads, or share the ownership.
  void weight_gradient(Dev& dev, auto work) {
    if (defer_ == nullptr) work(dev);
    else defer_->push_back(detail::DeferredGradient<Dev>(std::move(work)));
  }
  /// Collects weight gradients in `list` instead of running them. nullptr: run them at once.
  void defer_to(std::vector<detail::DeferredGradient<Dev>>* list) { defer_ = list; }

  /// Returns a tape for a nested forward pass. keep: saves tensors. recomputing: the pass repeats an earlier one.
  [[nodiscard]] Tape nested(bool keep, bool recomputing) const {
    Tape inner(context_, batch_);
    inner.keep_ = inner.keep_ && keep;
    inner.recomputing_ = recomputing_ || recomputing;
    inner.defer_ = defer_;
    inner.part_ = part_;
    return inner;
  }

  [[nodiscard]] bool empty() const { return tensors_.empty() && shapes_.empty(); }
  /// Returns the bytes of the saved tensors. A tensor that is shared with others counts in full.
  [[nodiscard]] std::size_t size_bytes() const {
    std::size_t bytes = 0;
    for (const auto& tensor : tensors_) bytes += tensor.size_bytes();
    return bytes;
  }

 private:
  [[nodiscard]] std::string part_name() const {
    return part_ == nullptr ? "a layer" : concat("layer ", *part_);
  }
  void check_above(std::size_t size, std::size_t bottom) const {
    if (size <= bottom)
      fail(part_name(),
           " pops more from the tape in its backward pass than its forward pass pushed");
  }

  StepContext context_;
  const MicroBatch<Dev>* batch_;
  bool keep_, recomputing_ = false;
  std::vector<Tensor<Dev>> tensors_;
  std::vector<Shape> shapes_;
  std::vector<detail::DeferredGradient<Dev>>* defer_ = nullptr;
  std::vector<Mark> marks_;            // marks of the parts that await their backward pass
  Mark bottom_;                        // mark of the part in its backward pass
  const std::string* part_ = nullptr;  // name of that part, for messages
};

}  // namespace dhp
