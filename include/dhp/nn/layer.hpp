// A layer: forward pushes on the tape what backward needs; backward pops it, adds weight gradients and returns
// the gradient of the input. Containers hold layers type-erased, so that a model is cut by splitting a vector.
// A layer may add its input gradient onto another, as residual connections need it: see backward_onto.
#pragma once

#include <dhp/device/out_of_memory.hpp>
#include <dhp/nn/model_builder.hpp>
#include <dhp/ops/elementwise.hpp>
#include <dhp/ops/reduce.hpp>
#include <dhp/tensor/tape.hpp>

#include <concepts>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace dhp {

namespace nn {

template <class L, class Dev>
concept HasForward = requires(L& layer, Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) {
  { layer.forward(dev, std::move(x), tape) } -> std::same_as<Tensor<Dev>>;
};
template <class L, class Dev>
concept HasBackward = requires(L& layer, Dev& dev, Tensor<Dev> dy, Tape<Dev>& tape) {
  { layer.backward(dev, std::move(dy), tape) } -> std::same_as<Tensor<Dev>>;
};
/// The member that a layer may have: onto, of x's shape, + the gradient of x; onto is the layer's to overwrite.
template <class L, class Dev>
concept HasBackwardOnto = requires(L& layer, Dev& dev, Tensor<Dev> dy, Tensor<Dev> onto,
                                   Tape<Dev>& tape) {
  { layer.backward_onto(dev, std::move(dy), std::move(onto), tape) } -> std::same_as<Tensor<Dev>>;
};
/// The class that declares a member function.
template <class Dev, class Owner>
Owner backward_owner(Tensor<Dev> (Owner::*)(Dev&, Tensor<Dev>, Tape<Dev>&));
template <class Dev, class Owner>
Owner backward_owner(Tensor<Dev> (Owner::*)(Dev&, Tensor<Dev>, Tensor<Dev>, Tape<Dev>&));
/// L replaces the backward of its base, and inherits a backward_onto that knows nothing of it.
template <class L, class Dev>
concept InheritsBackwardOnto = requires {
  backward_owner<Dev>(&L::backward);
  backward_owner<Dev>(&L::backward_onto);
  requires std::same_as<decltype(backward_owner<Dev>(&L::backward)), L>;
  requires !std::same_as<decltype(backward_owner<Dev>(&L::backward_onto)), L>;
};
template <class L, class Dev>
concept HasOutputShape = requires(const L& layer, const Shape& in, const MicroBatch<Dev>& batch) {
  { layer.output_shape(in, batch) } -> std::same_as<Shape>;
};
template <class L, class Dev>
concept HasFlops = requires(const L& layer, const Shape& in, const MicroBatch<Dev>& batch) {
  { layer.flops(in, batch) } -> std::same_as<double>;
};
template <class L, class Dev>
concept HasParameters = requires(const L& layer, ParameterList<Dev>& parameters) {
  layer.parameters(parameters);
};
/// The entry header of the Cpu's kernels declares kernels_are_included.
template <class Dev>
concept LacksKernels = std::same_as<Dev, Cpu> && !requires(const Dev& dev) {
  kernels_are_included(dev);
};

template <class P, class Dev>
constexpr void require_flops_and_parameters() {
  static_assert(
      HasFlops<P, Dev>,
      "a layer or loss lacks: double flops(const Shape& in, const MicroBatch<Dev>&) const");
  static_assert(HasParameters<P, Dev>,
                "a layer or loss lacks: void parameters(ParameterList<Dev>&) const");
}

}  // namespace nn

/// output_shape: the shape of forward's result, without computing it. flops: multiplications and additions of a
/// forward pass; stages are cut by it.
template <class L, class Dev>
concept Layer = nn::HasForward<L, Dev> && nn::HasBackward<L, Dev> && nn::HasOutputShape<L, Dev> &&
    nn::HasFlops<L, Dev> && nn::HasParameters<L, Dev>;

/// Makes the compiler name a missing member.
template <class L, class Dev>
constexpr void require_layer() {
  static_assert(nn::HasForward<L, Dev>,
                "a layer lacks: Tensor<Dev> forward(Dev&, Tensor<Dev> x, Tape<Dev>&)");
  static_assert(nn::HasBackward<L, Dev>,
                "a layer lacks: Tensor<Dev> backward(Dev&, Tensor<Dev> dy, Tape<Dev>&)");
  static_assert(!nn::InheritsBackwardOnto<L, Dev>,
                "a layer replaces backward of its base, but not backward_onto");
  static_assert(nn::HasOutputShape<L, Dev>,
                "a layer lacks: Shape output_shape(const Shape& in, const MicroBatch<Dev>&) const");
  nn::require_flops_and_parameters<L, Dev>();
  static_assert(!nn::LacksKernels<Dev>,
                "the kernels of the Cpu are missing: include dhp/cpu.hpp, not dhp/dhp.hpp alone");
}

/// A base for layers without weights whose y has the shape of x.
template <class Dev>
struct ElementwiseLayer {
  [[nodiscard]] Shape output_shape(const Shape& in, const MicroBatch<Dev>&) const { return in; }
  [[nodiscard]] double flops(const Shape& in, const MicroBatch<Dev>&) const {
    return static_cast<double>(in.count());
  }
  void parameters(ParameterList<Dev>&) const {}
};

/// What of a layer the tensor axis splits.
enum class Split { none, outputs, inputs };
[[nodiscard]] constexpr int split_dim(Split split, int of_outputs, int of_inputs) {
  return split == Split::none ? -1 : split == Split::outputs ? of_outputs : of_inputs;
}

/// [.., C] seen as [rows, C].
template <class AnyView>
[[nodiscard]] AnyView as_matrix(AnyView view) {
  return view.as({view.rows(), view.columns()});
}

/// x itself, to be overwritten, if it is not shared; else a new tensor like it. Views of x stay valid.
template <class Dev>
[[nodiscard]] Tensor<Dev> reuse(Dev& dev, Tensor<Dev>& x) {
  return x.unique() ? std::move(x) : Tensor<Dev>(dev, x.dtype(), x.shape());
}

/// x itself, to be added to, if it is not shared; else a copy.
template <class Dev>
[[nodiscard]] Tensor<Dev> writable(Dev& dev, Tensor<Dev> x) {
  return x.unique() ? std::move(x) : clone(dev, x.view());
}

/// a + b, in the memory of one that is not shared, if there is one.
template <class Dev>
[[nodiscard]] Tensor<Dev> sum_of(Dev& dev, Tensor<Dev> a, Tensor<Dev> b) {
  if (!a.unique() && b.unique()) std::swap(a, b);
  const auto one = a.view(), other = b.view();
  auto total = reuse(dev, a);
  add(dev, one, other, total.mut());
  return total;
}

/// onto + the layer's input gradient: in one pass by its own backward_onto, if it has one, else as a sum of two. A layer
/// that derives from another and replaces backward replaces backward_onto, too.
template <class Dev, class L>
[[nodiscard]] Tensor<Dev> backward_onto(Dev& dev, L& layer, Tensor<Dev> dy, Tensor<Dev> onto,
                                        Tape<Dev>& tape) {
  if constexpr (nn::HasBackwardOnto<L, Dev>)
    return layer.backward_onto(dev, std::move(dy), std::move(onto), tape);
  else return sum_of(dev, layer.backward(dev, std::move(dy), tape), std::move(onto));
}

/// The result of a layer is not finite.
class NotFinite : public Error {
 public:
  NotFinite(std::string layer, std::string what)
      : Error(concat("the ", what, " of layer ", layer, " is not finite")),
        layer_(std::move(layer)),
        what_(std::move(what)) {}
  /// Puts the name of the enclosing layer in front.
  [[nodiscard]] NotFinite inside(const std::string& outer) const {
    return {concat(outer, " > ", layer_), what_};
  }

 private:
  std::string layer_;
  std::string what_;
};

/// Returns body(), a pass of that layer. Throws NotFinite if asked to check; adds the name to other errors.
template <class Dev>
[[nodiscard]] Tensor<Dev> in_layer(Dev& dev, const std::string& name, const char* what,
                                   const Tape<Dev>& tape,
                                   std::type_identity_t<FunctionRef<Tensor<Dev>()>> body) {
  [[maybe_unused]] const auto scope = dev.scope(name);
  Tensor<Dev> result;
  try {
    result = body();
  } catch (const NotFinite& error) {
    throw error.inside(name);
  } catch (const OutOfMemory& error) {
    throw error.inside(name);
  }
  if (!tape.context().find_nonfinite || result.count() == 0) return result;
  auto flag = Tensor<Dev>::zeros(dev, DType::i32, {1});
  dhp::find_nonfinite(dev, result.view(), flag.mut());
  if (flag.template to_host<std::int32_t>(dev)[0] != 0) throw NotFinite(name, what);
  return result;
}

/// A layer of any type, with a name for messages.
template <class Dev>
class AnyLayer {
 public:
  template <class L>
  AnyLayer(std::string name, L layer) : name_(std::move(name)) {
    require_layer<L, Dev>();
    model_ = std::make_unique<Model<L>>(std::move(layer));
  }

  [[nodiscard]] const std::string& name() const { return name_; }

  Tensor<Dev> forward(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) {
    const auto began = tape.mark();
    auto y = in_layer(dev, name_, "output", tape,
                      [&] { return model_->forward(dev, std::move(x), tape); });
    tape.end_of_forward(began);
    return y;
  }
  Tensor<Dev> backward(Dev& dev, Tensor<Dev> dy, Tape<Dev>& tape) {
    return tape.backward_of(name_, [&] {
      return in_layer(dev, name_, "input gradient", tape,
                      [&] { return model_->backward(dev, std::move(dy), tape); });
    });
  }
  Tensor<Dev> backward_onto(Dev& dev, Tensor<Dev> dy, Tensor<Dev> onto, Tape<Dev>& tape) {
    return tape.backward_of(name_, [&] {
      return in_layer(dev, name_, "input gradient", tape, [&] {
        return model_->backward_onto(dev, std::move(dy), std::move(onto), tape);
      });
    });
  }
  [[nodiscard]] Shape output_shape(const Shape& in, const MicroBatch<Dev>& batch) const {
    return model_->output_shape(in, batch);
  }
  [[nodiscard]] double flops(const Shape& in, const MicroBatch<Dev>& batch) const {
    return model_->flops(in, batch);
  }
  void parameters(ParameterList<Dev>& out) const { model_->parameters(out); }

 private:
  struct Base {
    virtual ~Base() = default;
    virtual Tensor<Dev> forward(Dev&, Tensor<Dev>, Tape<Dev>&) = 0;
    virtual Tensor<Dev> backward(Dev&, Tensor<Dev>, Tape<Dev>&) = 0;
    virtual Tensor<Dev> backward_onto(Dev&, Tensor<Dev>, Tensor<Dev>, Tape<Dev>&) = 0;
    virtual Shape output_shape(const Shape&, const MicroBatch<Dev>&) const = 0;
    virtual double flops(const Shape&, const MicroBatch<Dev>&) const = 0;
    virtual void parameters(ParameterList<Dev>&) const = 0;
  };
  template <class L>
  struct Model final : Base {
    explicit Model(L held) : layer(std::move(held)) {}
    Tensor<Dev> forward(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) override {
      return layer.forward(dev, std::move(x), tape);
    }
    Tensor<Dev> backward(Dev& dev, Tensor<Dev> dy, Tape<Dev>& tape) override {
      return layer.backward(dev, std::move(dy), tape);
    }
    Tensor<Dev> backward_onto(Dev& dev, Tensor<Dev> dy, Tensor<Dev> onto,
                              Tape<Dev>& tape) override {
      return dhp::backward_onto(dev, layer, std::move(dy), std::move(onto), tape);
    }
    Shape output_shape(const Shape& in, const MicroBatch<Dev>& batch) const override {
      return layer.output_shape(in, batch);
    }
    double flops(const Shape& in, const MicroBatch<Dev>& batch) const override {
      return layer.flops(in, batch);
    }
    void parameters(ParameterList<Dev>& out) const override { layer.parameters(out); }
    L layer;
  };
  std::string name_;
  std::unique_ptr<Base> model_;
};

}  // namespace dhp
