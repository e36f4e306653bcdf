// Linear: y = x W^T + b over the rows of x.
#pragma once

#include <dhp/core/append.hpp>
#include <dhp/nn/low_rank.hpp>
#include <dhp/ops/linear.hpp>

#include <concepts>
#include <memory>

namespace dhp {

struct LinearOptions {
  std::int64_t in = 0, out = 0;
  bool bias = true;
  Initializer weight_init{Initializer::Kind::normal, 0.02};
  Initializer bias_init{};
  int fused = 0;  ///< ParameterSpec::fused of the weight and the bias
};

struct TiedLinearOptions {
  bool bias = true;  ///< true: the layer has its own bias
  /// Pads y with zero columns to a multiple of 64, and ignores these columns of dy. Tensor cores need aligned rows, but
  /// the size of a vocabulary is seldom a multiple of 8.
  bool padded = false;
};

namespace detail {

/// A linear layer. Composite layers, such as FeedForward, also call the parts of its passes.
template <class Dev>
class LinearParts : public AddsOnto<Dev, LinearParts<Dev>> {
 public:
  LinearParts(ModelBuilder<Dev>& build, const std::string& name, LinearOptions options,
              PlacementDims dims) {
    weights_ = build.pieces({.name = name + ".weight",
                             .shape = {options.out, options.in},
                             .init = options.weight_init,
                             .fused = options.fused},
                            dims);
    make_bias_and_sum(build, name, options.bias, options.bias_init, options.fused);
    adapter_ = build.adapter(name, spec());
  }
  LinearParts(ModelBuilder<Dev>& build, const std::string& name, ParameterList<Dev> tied,
              TiedLinearOptions options)
      : weights_(std::move(tied)), padded_(options.padded) {
    make_bias_and_sum(build, name, options.bias);
  }
  void take_whole_rows() { sum_.shares() = {}; }

  Tensor<Dev> forward(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) {
    check_there(x.shape());
    auto all = by_rows_ ? x.share() : gathered(dev, x.share(), tape);
    return forward_of(dev, std::move(all), std::move(x), tape);
  }

  /// Returns onto + the gradient of x; an empty onto counts as zero.
  Tensor<Dev> backward_onto(Dev& dev, Tensor<Dev> dy, Tensor<Dev> onto, Tape<Dev>& tape) {
    if (!by_rows_) return backward_of_all(dev, this, &dy, 1, std::move(onto), tape);
    dy = gathered(dev, std::move(dy), tape);
    const double beta = onto ? 1 : 0;
    auto dx = writable(dev, std::move(onto), dy.dtype(), x_shape(dy.shape()));
    for (int at = 0; at < pieces(); ++at)
      input_gradient(dev, dy.view(), at, piece(dx.mut(), at), beta);
    finish(dev, tape.pop(), std::move(dy), dx.mut(), bias_of_pieces(), tape);
    return dx;
  }

  // Parts of both passes, for composite layers. Their x and dy have all rows.

  /// Gathers all rows of x from the ranks' shares.
  [[nodiscard]] Tensor<Dev> gathered(Dev& dev, Tensor<Dev> x, const Tape<Dev>& tape) {
    return sum_.shares().gather(dev, std::move(x), tape);
  }
  /// Computes y. kept: this rank's rows of x, saved for the backward pass.
  Tensor<Dev> forward_of(Dev& dev, const Tensor<Dev>& x, Tensor<Dev> kept, Tape<Dev>& tape) {
    check_columns(x.shape());
    Tensor<Dev> y;
    if (by_rows_) {
      y = sum_.by_rows(dev, x.dtype(), whole_y(x.shape()), {},
                       [&](int at, Range block, View<Dev> out, double) {
                         product(dev, piece(x.view(), at).slice(block), at, sum_.is_first(at), out);
                       });
    } else {
      y = Tensor<Dev>(dev, x.dtype(), whole_y(x.shape()));
      if (is_padded()) dev.fill_zero(y.mut().bytes(), y.size_bytes());
      for (int at = 0; at < pieces(); ++at) product(dev, x.view(), at, true, piece(y.mut(), at));
    }
    if (adapter_) adapter_->forward(dev, x.view(), y.mut(), tape);
    tape.push(std::move(kept));
    return y;
  }
  /// Returns onto + the gradient of the common x of several column-parallel layers, with one sum over the group. onto
  /// may be empty. dy: gradients of the layers' outputs, in the order of their forward passes; they are moved from.
  static Tensor<Dev> backward_of_all(Dev& dev, LinearParts* layers, Tensor<Dev>* dy,
                                     std::size_t count, Tensor<Dev> onto, Tape<Dev>& tape) {
    auto& any = layers[0];
    auto kept = tape.pop();
    auto all = any.sum_.shares().start_gather(dev, std::move(kept), tape);
    auto sum =
        any.sum_.start_by_rows(dev, dy[0].dtype(), any.x_shape(dy[0].shape()), std::move(onto),
                               [&](int at, Range block, View<Dev> to, double beta) {
                                 for (auto of = count; of-- > 0;) {
                                   const auto part = any.piece(dy[of].view(), at).slice(block);
                                   layers[of].input_gradient(dev, part, at, to, beta);
                                   beta = 1;  // the next layer adds to `to`
                                 }
                               });
    const auto x = std::move(all).wait();
    Tensor<Dev> dx;
    for (auto of = count; of-- > 0;) {
      if (of + 1 < count) (void)tape.pop();  // pops the same x
      if (layers[of].adapter_ && !dx) dx = std::move(sum).wait(dev);
      layers[of].finish(dev, x.share(), std::move(dy[of]), dx.mut(), layers[of].bias_of_pieces(),
                        tape);
    }
    return dx ? std::move(dx) : std::move(sum).wait(dev);
  }

  /// Computes dx = beta dx + dy W with piece `at` of W, without the adapter's contribution. By columns, dy is piece
  /// `at` and dx is complete; by rows, dy is complete and dx is piece `at`. Both may be a range of rows.
  void input_gradient(Dev& dev, ConstView<Dev> dy, int at, View<Dev> dx, double beta) {
    gemm(dev, as_matrix(dy), weight(at)->value, as_matrix(dx),
         {.beta = beta, .padded = is_padded()});
  }
  /// Defers the weight's gradient only: the caller computes the gradients of x and of the bias.
  void finish_without_bias(Dev& dev, Tensor<Dev> x, Tensor<Dev> dy, Tape<Dev>& tape) {
    weight_gradient(dev, std::move(x), std::move(dy), {}, tape);
  }
  /// Defers the gradients of weight and bias: the caller computes the gradient of x.
  void backward_weight(Dev& dev, Tensor<Dev> dy, Tape<Dev>& tape) {
    weight_gradient(dev, tape.pop(), std::move(dy), bias_of_pieces(), tape);
  }

  /// The pieces of the weight that this rank holds; without tensor groups there is one.
  [[nodiscard]] const ParameterList<Dev>& weights() const { return weights_; }
  /// The pieces of the bias: empty without a bias, one if the bias is replicated.
  [[nodiscard]] const ParameterList<Dev>& biases() const { return biases_; }
  [[nodiscard]] const ParameterSpec& spec() const { return weights_[0]->spec; }
  [[nodiscard]] bool is_adapted() const { return adapter_ != nullptr; }

  [[nodiscard]] Shape output_shape(const Shape& in, const MicroBatch<Dev>& batch) const {
    if (by_rows_) return sum_.shares().local(whole_y(in));
    return whole_y(in.with(0, sum_.shares().all(batch, in[0])));
  }
  /// Returns y's shape for an x that has all rows.
  [[nodiscard]] Shape whole_y(const Shape& in) const {
    if (by_rows_) {
      const auto piece = shape_of_piece(pieces(), in);
      return piece.with(piece.rank() - 1, spec().shape[0]);
    }
    const auto columns = padded_ ? (width_ + 63) / 64 * 64 : width_;
    return shape_of_pieces(pieces(), in.with(in.rank() - 1, columns));
  }
  [[nodiscard]] double flops(const Shape& in, const MicroBatch<Dev>& batch) const {
    check_there(in);
    const auto own = by_rows_ ? shape_of_piece(pieces(), in) : in;
    const auto height =
        by_rows_ ? own.rows() : own.with(0, sum_.shares().all(batch, own[0])).rows();
    double weights = 0;
    for (const auto& each : weights_)
      weights += static_cast<double>(each->spec.local_shape().count());
    return 2.0 * static_cast<double>(height) * weights + (adapter_ ? adapter_->flops(height) : 0);
  }
  void parameters(ParameterList<Dev>& out) const {
    detail::append(out, weights_);
    detail::append(out, biases_);
    adapter_parameters(out);
  }
  void adapter_parameters(ParameterList<Dev>& out) const {
    if (adapter_) adapter_->parameters(out);
  }

 private:
  [[nodiscard]] int pieces() const { return static_cast<int>(weights_.size()); }
  [[nodiscard]] const Parameter<Dev>& weight(int at) const { return weights_[as_size(at)]; }
  template <class AnyView>
  [[nodiscard]] AnyView piece(AnyView all, int at) const {
    return detail::piece(all, pieces(), at);
  }
  /// Returns the bias of each piece; null without a bias. A replicated bias belongs to the first piece only.
  [[nodiscard]] ParameterList<Dev> bias_of_pieces() const {
    auto list = biases_;
    list.resize(weights_.size());
    return list;
  }
  void product(Dev& dev, ConstView<Dev> x, int at, bool adds_bias, View<Dev> y) {
    const auto& bias = biases_.empty() ? nullptr : biases_[by_rows_ ? 0 : as_size(at)];
    gemm(dev, as_matrix(x), weight(at)->value, as_matrix(y),
         {.transpose_b = true, .padded = is_padded()},
         bias && adds_bias ? ConstView<Dev>(bias->value) : ConstView<Dev>());
  }
  void finish(Dev& dev, Tensor<Dev> x, Tensor<Dev> dy, View<Dev> dx, ParameterList<Dev> biases,
              Tape<Dev>& tape) {
    if (adapter_) adapter_->backward(dev, x, dy, dx, tape);
    weight_gradient(dev, std::move(x), std::move(dy), std::move(biases), tape);
  }
  /// Defers the gradients of weight and bias together, because a device may fuse them. biases: empty, or one entry for
  /// each piece; entries may be null.
  void weight_gradient(Dev& dev, Tensor<Dev> x, Tensor<Dev> dy, ParameterList<Dev> biases,
                       Tape<Dev>& tape) {
    biases.resize(weights_.size());
    if (!is_trained(weights_) && !is_trained(biases)) return;
    tape.weight_gradient(
        dev, [weights = weights_, biases = std::move(biases), x = std::move(x), dy = std::move(dy),
              padded = is_padded(), by_rows = by_rows_, grouped = sum_.is_grouped(),
              row_groups = tape.row_groups()](Dev& device) {
          const auto pieces = static_cast<int>(weights.size());
          // By rows, the size of the axis decides which pieces have a bias. A product fused with the bias gradient may
          // have other bits, so both are computed separately.
          const bool separate = by_rows && grouped;
          for (int at = 0; at < pieces; ++at) {
            const auto& weight = weights[as_size(at)];
            const auto& bias = biases[as_size(at)];
            const auto piece_or_whole = [&](bool split, const Tensor<Dev>& all) {
              return as_matrix(split ? detail::piece(all.view(), pieces, at) : all.view());
            };
            const auto all_out = piece_or_whole(!by_rows, dy), all_in = piece_or_whole(by_rows, x);
            for_row_groups(row_groups, all_in.rows(), [&](Range of_group) {
              const auto out = all_out.slice(of_group);
              const auto in = all_in.slice(of_group);
              if (bias && separate)
                bias->accumulate(device, [&](View<Dev> sums, double beta) {
                  column_sums(device, out, sums, beta, padded);
                });
              if (!bias || separate)
                weight->accumulate(device, [&](View<Dev> dw, double beta) {
                  gemm(device, out, in, dw, {.transpose_a = true, .beta = beta, .padded = padded});
                });
              else
                accumulate_all(device, {weight, bias}, [&](const auto& views, double beta) {
                  linear_gradients(device, out, in, views[0], views[1], beta, padded);
                });
            });
          }
        });
  }

  [[nodiscard]] bool is_padded() const { return padded_ || uneven_; }
  [[nodiscard]] Shape x_shape(const Shape& out) const {
    if (by_rows_)
      return shape_of_pieces(pieces(), out.with(out.rank() - 1, spec().local_shape()[1]));
    const auto piece = shape_of_piece(pieces(), out);
    return piece.with(piece.rank() - 1, spec().shape[1]);
  }

  void check_there(const Shape& in) const {
    check(in.rank() > 0, "a layer with the weight ", spec().name, " needs an x of [.., ",
          spec().shape[1], "], but x is empty; the micro-batches (or samples) need an input");
  }
  void check_columns(const Shape& in) const {
    check(in.back() == spec().local_shape()[1], "a layer with the weight ", spec().name,
          ", placement ", spec().placement, ", has ", spec().local_shape()[1], " of ",
          spec().shape[1], " inputs on this rank, but x has ", in.back(),
          " columns; where tensor ranks hold columns of x, the next layer is placed by rows");
  }

  /// Makes the bias and the sum that the weight's placement needs.
  [[gnu::cold]] void make_bias_and_sum(ModelBuilder<Dev>& build, const std::string& name, bool bias,
                                       Initializer init = {}, int fused = 0) {
    const auto placement = spec().placement;
    by_rows_ = placement == Placement::rows;
    sum_ = build.sum_of_pieces(placement, build.row_shares());
    build.check_shared(spec());
    width_ = spec().local_shape()[0];
    if (sum_.is_grouped() && !by_rows_) {
      width_ = part_of(spec().shape[0], spec().groups, 0).size();
      uneven_ = spec().shape[0] % spec().groups != 0;
    }
    if (!bias) return;
    biases_ = build.pieces({.name = name + ".bias",
                            .shape = {spec().shape[0]},
                            .init = init,
                            .decays = false,
                            .fused = fused},
                           {.columns = 0, .heads = 0, .words = 0});
    build.check_matching_placement(biases_[0]->spec, by_rows_ ? Placement::replicated : placement,
                                   spec());
  }

  ParameterList<Dev> weights_, biases_;  // this rank's pieces
  bool by_rows_ = false, padded_ = false;
  bool uneven_ = false;     // pieces differ in width
  std::int64_t width_ = 0;  // columns of the widest piece of y, without padding
  GroupSum<Dev> sum_;       // sums y by rows, otherwise the gradient of x
  std::shared_ptr<Adapter<Dev>> adapter_;
};

}  // namespace detail

/// x is [.., in], y is [.., out]; the weight is "name.weight" [out, in], the bias "name.bias" [out]. By columns or
/// words, each rank has the complete x and computes its outputs in y. By rows, x holds the rank's inputs, and each rank
/// gets the complete y; the first rank adds the replicated bias, and all compute its gradient. With tensor groups, a
/// rank's inputs or outputs are pieces [pieces, .., columns of the widest piece]. If ranks share rows, a rank holds
/// only its rows of complete tensors; the layer gathers them. The builder may add an adapter (nn/low_rank.hpp).
template <class Dev>
class Linear final : detail::LinearParts<Dev> {
  using Parts = detail::LinearParts<Dev>;

 public:
  /// dims: the dimension of the weight that each placement splits.
  Linear(ModelBuilder<Dev>& build, const std::string& name, LinearOptions options,
         PlacementDims dims = {.columns = 0, .rows = 1, .words = 0})
      : Parts(build, name, options, dims) {}
  /// Uses the weights of another layer with the same placement: a tied decoder. It is a template because g++ could
  /// otherwise read {.in = 8, .out = 0} as a list of 8 null parameters instead of options.
  template <std::same_as<ParameterList<Dev>> List = ParameterList<Dev>>
  Linear(ModelBuilder<Dev>& build, const std::string& name, List tied,
         TiedLinearOptions options = {})
      : Parts(build, name, std::move(tied), options) {}

  /// Returns a layer with this layer's parameters, for an x that has all rows on each rank.
  [[nodiscard]] Linear of_whole_rows() const {
    auto result = *this;
    result.take_whole_rows();
    return result;
  }
  using Parts::backward, Parts::backward_onto, Parts::biases, Parts::flops, Parts::forward,
      Parts::output_shape, Parts::parameters, Parts::weights;
};

}  // namespace dhp
