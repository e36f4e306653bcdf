// A loss ends a model. Like a layer it may own parameters (BERT's heads). It reads its targets from the batch and
// writes a sum and a count for each of its terms. A term's value is its sum over the *global* batch divided by its
// count over the global batch, never a mean of means. GlobalLoss adds the micro-batches in the order of their indices,
// so its bits are the same in every layout.
#pragma once

#include <dhp/comm/mesh.hpp>
#include <dhp/core/crc32c.hpp>
#include <dhp/nn/layer.hpp>

#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace dhp {

/// One term of the loss, for one micro-batch or for the sum of several.
struct LossTerm {
  double sum = 0;                    ///< sum of the loss over tokens or samples
  std::int64_t count = 0;            ///< number of tokens or samples
  std::int64_t correct = 0;          ///< top-1 hits; counted in evaluation only
  std::int64_t correct_in_five = 0;  ///< top-5 hits
  LossTerm& operator+=(const LossTerm& more) {
    sum += more.sum;
    count += more.count;
    correct += more.correct;
    correct_in_five += more.correct_in_five;
    return *this;
  }
  [[nodiscard]] double mean() const { return count == 0 ? 0 : sum / static_cast<double>(count); }
};
/// Number of values of a term on the device: f64 [loss_fields], in the order of LossTerm's members.
inline constexpr std::int64_t loss_fields = 4;

namespace detail {

template <class L>
concept HasTermNames = requires(const L& loss) {
  { loss.term_names() } -> std::same_as<std::vector<std::string>>;
};
template <class L, class Dev>
concept HasLossForward = requires(L& loss, Dev& dev, Tensor<Dev> x, Tape<Dev>& tape,
                                  View<Dev> totals) {
  loss.forward(dev, std::move(x), tape, totals);
};
template <class L, class Dev>
concept HasLossBackward = requires(L& loss, Dev& dev, ConstView<Dev> scales, Tape<Dev>& tape) {
  { loss.backward(dev, scales, tape) } -> std::same_as<Tensor<Dev>>;
};

/// Optional member: returns predictions without labels, one row for each sample or token, complete on each tensor rank.
template <class L, class Dev>
concept HasPredict = requires(L& loss, Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) {
  { loss.predict(dev, std::move(x), tape) } -> std::same_as<Tensor<Dev>>;
};

/// Makes the compiler name the member that a type lacks to be a loss.
template <class L, class Dev>
constexpr void require_loss() {
  static_assert(HasTermNames<L>, "a loss lacks: std::vector<std::string> term_names() const");
  static_assert(HasLossForward<L, Dev>,
                "a loss lacks: void forward(Dev&, Tensor<Dev> x, Tape<Dev>&, View<Dev> totals)");
  static_assert(HasLossBackward<L, Dev>,
                "a loss lacks: Tensor<Dev> backward(Dev&, ConstView<Dev> scales, Tape<Dev>&)");
  require_flops_and_parameters<L, Dev>();
}
}  // namespace detail

/// term_names: the fixed names of the terms; MicroBatch::counts has each term's count under the same name.
/// forward: pushes on the tape and writes every term to totals, f64 [terms, loss_fields] on the device.
/// backward: returns the gradient of the objective sum_t scales[t] * sum_t for the last layer's output. scales, f64
/// [terms] on the device, are loss scale / global count.
/// predict (optional): returns predictions, such as logits or embeddings, from the last layer's output.
template <class L, class Dev>
concept Loss = detail::HasTermNames<L> && detail::HasLossForward<L, Dev> &&
    detail::HasLossBackward<L, Dev> && detail::HasFlops<L, Dev> && detail::HasParameters<L, Dev>;

namespace detail {
/// Returns body(), a pass of the loss. Errors name the loss, and so does a non-finite result of a layer inside.
template <class Dev>
decltype(auto) in_loss(const Tape<Dev>& tape, auto body) {
  const FirstNonFinite::Inside inside(tape.context().first_nonfinite, "loss");
  return naming_layer("loss", body);
}
}  // namespace detail

template <class Dev>
class AnyLoss {
 public:
  AnyLoss() = default;
  template <class L>
    requires(!std::same_as<L, AnyLoss>)
  AnyLoss(L loss) {
    detail::require_loss<L, Dev>();
    model_.reset(new Model<L>(std::move(loss)));
  }

  [[nodiscard]] explicit operator bool() const { return model_ != nullptr; }
  [[nodiscard]] std::vector<std::string> term_names() const { return model_->term_names(); }
  void forward(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape, View<Dev> totals) {
    const auto began = tape.mark();
    detail::in_loss(tape, [&] { model_->forward(dev, std::move(x), tape, totals); });
    tape.end_of_forward(began);
  }
  Tensor<Dev> backward(Dev& dev, ConstView<Dev> scales, Tape<Dev>& tape) {
    return tape.backward_of("loss", [&] {
      auto dx = detail::in_loss(tape, [&] { return model_->backward(dev, scales, tape); });
      return detail::looked_at(dev, "loss", "input gradient", tape.context().first_nonfinite,
                               std::move(dx));
    });
  }
  /// Throws Error if the loss has no predict.
  Tensor<Dev> predict(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) {
    const auto began = tape.mark();
    auto y = detail::in_loss(tape, [&] { return model_->predict(dev, std::move(x), tape); });
    check(y && is_floating(y.dtype()), "layer loss: predict returns ",
          y ? to_text(y.dtype()) : "no", " values; predictions are floating-point numbers");
    tape.end_of_forward(began);
    return y;
  }
  [[nodiscard]] double flops(const Shape& in, const MicroBatch<Dev>& batch) const {
    return model_->flops(in, batch);
  }
  void parameters(ParameterList<Dev>& out) const { model_->parameters(out); }

 private:
  struct Base {
    virtual ~Base() = default;
    virtual std::vector<std::string> term_names() const = 0;
    virtual void forward(Dev&, Tensor<Dev>, Tape<Dev>&, View<Dev>) = 0;
    virtual Tensor<Dev> backward(Dev&, ConstView<Dev>, Tape<Dev>&) = 0;
    virtual Tensor<Dev> predict(Dev&, Tensor<Dev>, Tape<Dev>&) = 0;
    virtual double flops(const Shape&, const MicroBatch<Dev>&) const = 0;
    virtual void parameters(ParameterList<Dev>&) const = 0;
  };
  template <class L>
  struct Model final : Base {
    explicit Model(L held) : loss(std::move(held)) {}
    std::vector<std::string> term_names() const override { return loss.term_names(); }
    void forward(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape, View<Dev> totals) override {
      loss.forward(dev, std::move(x), tape, totals);
    }
    Tensor<Dev> backward(Dev& dev, ConstView<Dev> scales, Tape<Dev>& tape) override {
      return loss.backward(dev, scales, tape);
    }
    Tensor<Dev> predict(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) override {
      if constexpr (detail::HasPredict<L, Dev>) return loss.predict(dev, std::move(x), tape);
      else
        fail(
            "this model's loss has no predictions; give it "
            "Tensor<Dev> predict(Dev&, Tensor<Dev> x, Tape<Dev>&)");
    }
    double flops(const Shape& in, const MicroBatch<Dev>& batch) const override {
      return loss.flops(in, batch);
    }
    void parameters(ParameterList<Dev>& out) const override { loss.parameters(out); }
    L loss;
  };
  std::unique_ptr<Base> model_;
};

/// A complete model, before it is cut into stages: its layers in order, and its loss.
template <class Dev>
struct Model {
  std::vector<AnyLayer<Dev>> layers;
  AnyLoss<Dev> loss;

  void add(std::string name, auto layer) { layers.emplace_back(std::move(name), std::move(layer)); }
  /// Returns the parameters of all layers and of the loss. A tied parameter appears twice.
  [[nodiscard]] ParameterList<Dev> parameters() const {
    ParameterList<Dev> list;
    for (const auto& layer : layers) layer.parameters(list);
    loss.parameters(list);
    return list;
  }
};

struct GlobalLoss {
  std::vector<LossTerm> terms;     ///< summed over all micro-batches
  std::int64_t micro_batches = 0;  ///< number of micro-batches of all replicas
  /// Index of the first micro-batch with a non-finite loss; -1 if there is none.
  std::int64_t first_bad_micro_batch = -1;

  /// Appends the micro-batches of `more`, which must have the same terms; a new GlobalLoss gets these terms.
  GlobalLoss& operator+=(const GlobalLoss& more) {
    if (terms.empty()) terms.resize(more.terms.size());
    check(terms.size() == more.terms.size(), "losses of ", terms.size(), " and ", more.terms.size(),
          " terms cannot be added; both need the same terms");
    for (std::size_t term = 0; term < terms.size(); ++term) terms[term] += more.terms[term];
    if (first_bad_micro_batch < 0 && more.first_bad_micro_batch >= 0)
      first_bad_micro_batch = micro_batches + more.first_bad_micro_batch;
    micro_batches += more.micro_batches;
    return *this;
  }
  /// Returns the objective: the sum of the terms' means.
  [[nodiscard]] double value() const {
    double sum = 0;
    for (const auto& term : terms) sum += term.mean();
    return sum;
  }
};

namespace detail {
/// Returns a request to gather_losses(): 1 to stop, else 0; a number whose sum over all ranks is 0 if the ranks of each
/// replica have the same micro-batches, or if `compares` is false; this rank's number of micro-batches; and a number
/// whose sum is 0 if all ranks have the same learning rate.
template <class Dev>
[[nodiscard]] std::vector<double> request_of(Dev& dev, Mesh<Dev>& mesh, bool stops,
                                             const std::vector<MicroBatch<Dev>>& batches,
                                             bool compares, double learning_rate) {
  const auto against = [](std::uint32_t mine, int others, int rank) {
    return mine * (rank == 0 ? others - 1.0 : -1.0);
  };
  auto& world = mesh.world();
  const auto& shape = mesh.shape();
  const int ranks = shape.size() / shape.data;  // of a replica
  double same = 0;
  if constexpr (has_data<Dev>) {
    std::uint32_t input = 0, side = 0;  // later stages may have no input
    const auto add = [&](const Tensor<Dev>& x, std::uint32_t& sum) {
      auto copy = dev.start_copy_to_host(x.view().bytes(), x.size_bytes());
      sum = crc32c(copy.template wait<std::byte>(), sum);
    };
    for (const auto& batch : batches) {
      if (!compares || ranks == 1 || world.transport() == "none") break;  // none: planned
      if (batch.input && shape.tensor > 1) add(batch.input, input);
      for (const auto& [name, x] : batch.side) add(x, side);
    }
    same = against(input, shape.tensor, mesh.tensor_index()) +
           against(side, ranks, mesh.tensor_index() + mesh.context_index() + mesh.pipeline_index());
  }
  // As a float, because hosts may differ in the last bit of a double's cosine.
  const auto rate = static_cast<float>(learning_rate);
  return {stops ? 1.0 : 0.0, same, static_cast<double>(batches.size()),
          against(crc32c(std::as_bytes(std::span(&rate, 1))), world.size(), world.rank())};
}

/// Throws Error if the sums of all ranks' requests say that ranks have other micro-batches than their step needs.
inline void check_request(std::span<const double> sums, const MeshShape& ranks, std::int64_t step,
                          std::int64_t micro_batches) {
  check(sums[1] == 0, "ranks of one replica have different micro-batches in step ", step,
        "; give them the same, those of their replica Mesh::data_index()");
  check(sums[3] == 0, "ranks have different learning rates in step ", step,
        ", so their weights differ now: resume from a checkpoint, and let LearningRate::own return "
        "the same on all ranks");
  const double found = sums[2] * ranks.data / ranks.size();
  check(found == static_cast<double>(micro_batches), "step ", step, " has ", micro_batches,
        " micro-batches, but the replicas of the data axis have ", found,
        " in all; each micro-batch belongs to one replica");
}

/// Gathers the losses of all replicas, f64 [micro_batches, terms, loss_fields] on the device. Collective over the data
/// and the pipeline axis and, if there is a request, over the tensor axis. mine: the losses of this rank's `batches`;
/// zeros on ranks without the loss. request: f64 [4], values to sum over all ranks; the sums begin an additional last
/// row of the result.
template <class Dev>
[[nodiscard]] Tensor<Dev> gather_losses(Dev& dev, Mesh<Dev>& mesh, Tensor<Dev> mine,
                                        std::span<const MicroBatch<Dev>> batches,
                                        std::int64_t micro_batches, InView<Dev> request = {}) {
  auto& data = mesh.data();
  auto& pipeline = mesh.pipeline();
  const auto rows = micro_batches + (request ? 1 : 0);
  auto all = Tensor<Dev>::zeros(dev, DType::f64, mine.shape().with(0, rows));
  std::vector<int> times(as_size(micro_batches), 0);
  for (std::size_t at = 0; at < batches.size(); ++at) {
    const auto index = batches[at].index;
    check_index(index, micro_batches);
    check(++times[as_size(index)] == 1, "two micro-batches of this step have the index ", index,
          "; they are numbered from 0 over all replicas of the data axis");
    const auto row = static_cast<std::int64_t>(at);
    copy(dev, mine.view().slice(row, row + 1), all.mut().slice(index, index + 1));
  }
  const auto last = all.mut().slice(micro_batches, rows);
  if (request) copy(dev, request, last);
  // An entry is nonzero on one rank only, so sums are exact; on a context axis, ranks add their parts of an entry.
  if (data.size() > 1) data.all_reduce(dev, all.mut()).wait();
  if (pipeline.size() > 1) pipeline.all_reduce(dev, all.mut()).wait();
  if (request && mesh.tensor().size() > 1) mesh.tensor().all_reduce(dev, last).wait();
  return all;
}

/// Throws Error if a term's count differs from the micro-batch's. entries: the result of gather_losses, on the host.
template <class Dev>
void check_counts(const std::vector<double>& entries, const std::vector<std::string>& names,
                  std::span<const MicroBatch<Dev>> batches) {
  for (const auto& batch : batches)
    for (std::size_t term = 0; term < names.size(); ++term) {
      const auto row = as_size(batch.index) * names.size() + term;
      const auto counted = static_cast<std::int64_t>(entries[row * loss_fields + 1]);
      check(counted == batch.count_of(names[term]), "the loss counted ", counted,
            " for its term \"", names[term], "\", but micro-batch ", batch.index, " says ",
            batch.count_of(names[term]),
            ": a batcher and its loss must count alike, and no two replicas of the data axis may "
            "have a micro-batch of one index");
    }
}

/// Sums the micro-batches of entries: the result of gather_losses, on the host.
[[nodiscard]] inline GlobalLoss sum_losses(const std::vector<double>& entries, std::size_t terms) {
  GlobalLoss loss{.terms = std::vector<LossTerm>(terms)};
  const auto row = terms * as_size(loss_fields);
  loss.micro_batches = row == 0 ? 0 : static_cast<std::int64_t>(entries.size() / row);
  for (std::int64_t index = 0; index < loss.micro_batches; ++index)
    for (std::size_t term = 0; term < terms; ++term) {
      const auto at = as_size(index) * row + term * loss_fields;
      loss.terms[term] += {.sum = entries[at],
                           .count = static_cast<std::int64_t>(entries[at + 1]),
                           .correct = static_cast<std::int64_t>(entries[at + 2]),
                           .correct_in_five = static_cast<std::int64_t>(entries[at + 3])};
      if (!std::isfinite(entries[at]) && loss.first_bad_micro_batch < 0)
        loss.first_bad_micro_batch = index;
    }
  return loss;
}
}  // namespace detail

}  // namespace dhp
