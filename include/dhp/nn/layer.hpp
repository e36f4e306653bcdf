// A layer: forward pushes the tensors that backward needs on the tape; backward pops them, adds weight gradients and
// returns the input gradient. Containers hold type-erased layers, so a model is cut into stages by splitting a vector.
// For residual connections a layer can add its input gradient onto another tensor: see backward_onto.
#pragma once

#include <dhp/nn/group_sum.hpp>
#include <dhp/nn/layer_error.hpp>
#include <dhp/nn/model_builder.hpp>
#include <dhp/ops/elementwise.hpp>
#include <dhp/ops/reduce.hpp>
#include <dhp/tensor/tape.hpp>

#include <concepts>
#include <memory>
#include <string>
#include <utility>

namespace dhp {

namespace detail {

template <class L, class Dev>
concept HasForward = requires(L& layer, Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) {
  { layer.forward(dev, std::move(x), tape) } -> std::same_as<Tensor<Dev>>;
};
template <class L, class Dev>
concept HasBackward = requires(L& layer, Dev& dev, Tensor<Dev> dy, Tape<Dev>& tape) {
  { layer.backward(dev, std::move(dy), tape) } -> std::same_as<Tensor<Dev>>;
};
/// Optional member: returns onto + the gradient of x. onto has x's shape, and the layer may overwrite it.
template <class L, class Dev>
concept HasBackwardOnto = requires(L& layer, Dev& dev, Tensor<Dev> dy, Tensor<Dev> onto,
                                   Tape<Dev>& tape) {
  { layer.backward_onto(dev, std::move(dy), std::move(onto), tape) } -> std::same_as<Tensor<Dev>>;
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
/// True on the CPU while no kernels are included; their entry header declares kernels_are_included().
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

/// Makes the compiler name the member that a type lacks to be a layer.
template <class L, class Dev>
constexpr void require_layer() {
  static_assert(HasForward<L, Dev>,
                "a layer lacks: Tensor<Dev> forward(Dev&, Tensor<Dev> x, Tape<Dev>&)");
  static_assert(HasBackward<L, Dev>,
                "a layer lacks: Tensor<Dev> backward(Dev&, Tensor<Dev> dy, Tape<Dev>&)");
  static_assert(HasOutputShape<L, Dev>,
                "a layer lacks: Shape output_shape(const Shape& in, const MicroBatch<Dev>&) const");
  require_flops_and_parameters<L, Dev>();
  static_assert(!LacksKernels<Dev>,
                "the kernels of the Cpu are missing: include dhp/cpu.hpp, not dhp/dhp.hpp alone");
}
/// Returns a view of [.., C] as a matrix [rows, C].
template <class AnyView>
[[nodiscard]] AnyView as_matrix(AnyView view) {
  return view.as({view.rows(), view.columns()});
}
/// Converts x to this floating-point type. Returns integer tensors and empty tensors unchanged.
template <class Dev>
[[nodiscard]] Tensor<Dev> in_type(Dev& dev, Tensor<Dev> x, DType type) {
  if (!x || !is_floating(x.dtype()) || x.dtype() == type) return x;
  Tensor<Dev> made(dev, type, x.shape());
  cast(dev, x.view(), made.mut());
  return made;
}
/// Returns `result`, the output of a layer's pass. If `first` is not null and nothing is found yet, checks the result.
template <class Dev>
[[nodiscard]] Tensor<Dev> looked_at(Dev& dev, const std::string& name, const char* what,
                                    FirstNonFinite* first, Tensor<Dev> result) {
  if (first == nullptr || first->found || result.count() == 0) return result;
  Tensor<Dev> count(dev, DType::f64, {1});
  dhp::detail::count_nonfinite(dev, result.view(), count.mut());
  first->found = count.template to_host<double>(dev)[0] != 0;
  if (first->found) first->layer = name, first->what = what;
  else ++first->checked;
  return result;
}
/// Runs body(), one pass of a layer, and returns its output, checked by looked_at(). Errors name the layer.
template <class Dev>
[[nodiscard]] Tensor<Dev> in_layer(Dev& dev, const std::string& name, const char* what,
                                   const Tape<Dev>& tape,
                                   std::type_identity_t<FunctionRef<Tensor<Dev>()>> body) {
  [[maybe_unused]] const auto scope = dev.scope(name);
  auto* const first = tape.context().first_nonfinite;
  Tensor<Dev> result;
  try {
    const FirstNonFinite::Inside inside(first, name);
    result = body();
  } catch (const std::exception&) {
    rethrow_inside(name);
  }
  return looked_at(dev, name, what, first, std::move(result));
}
}  // namespace detail

namespace detail {
/// Base of a layer L that has backward_onto. Its backward() calls backward_onto with an empty tensor to add to.
template <class Dev, class L>
struct AddsOnto {
  Tensor<Dev> backward(Dev& dev, Tensor<Dev> dy, Tape<Dev>& tape) {
    return static_cast<L*>(this)->backward_onto(dev, std::move(dy), {}, tape);
  }
};
}  // namespace detail

/// output_shape returns the shape of forward's result without computing it. flops returns the multiplications and
/// additions of a forward pass; the pipeline uses it to cut stages.
template <class L, class Dev>
concept Layer = detail::HasForward<L, Dev> && detail::HasBackward<L, Dev> &&
    detail::HasOutputShape<L, Dev> && detail::HasFlops<L, Dev> && detail::HasParameters<L, Dev>;

/// Base of layers whose y has the shape of x. A layer with weights overrides parameters(). cost: flops of one element.
template <class Dev, int cost = 1>
struct ElementwiseLayer {
  [[nodiscard]] Shape output_shape(const Shape& in, const MicroBatch<Dev>&) const { return in; }
  [[nodiscard]] double flops(const Shape& in, const MicroBatch<Dev>&) const {
    return cost * static_cast<double>(in.count());
  }
  void parameters(ParameterList<Dev>&) const {}
};

/// Returns x's memory for overwriting, or a new tensor of x's shape if x is shared. Views of x stay valid.
template <class Dev>
[[nodiscard]] Tensor<Dev> reuse(Dev& dev, Tensor<Dev>& x) {
  return x.unique() ? std::move(x) : Tensor<Dev>(dev, x.dtype(), x.shape());
}

/// Returns a + b; reuses the memory of a or b if one of them is not shared.
template <class Dev>
[[nodiscard]] Tensor<Dev> sum_of(Dev& dev, Tensor<Dev> a, Tensor<Dev> b) {
  if (!a.unique() && b.unique()) std::swap(a, b);
  const auto one = a.view(), other = b.view();
  auto total = reuse(dev, a);
  add(dev, one, other, total.mut());
  return total;
}

/// Returns onto + the layer's input gradient: in one pass if the layer has backward_onto, otherwise by an addition. An
/// empty onto counts as zero.
template <class Dev, class L>
[[nodiscard]] Tensor<Dev> backward_onto(Dev& dev, L& layer, Tensor<Dev> dy, Tensor<Dev> onto,
                                        Tape<Dev>& tape) {
  if (!onto) return layer.backward(dev, std::move(dy), tape);
  if constexpr (detail::HasBackwardOnto<L, Dev>)
    return layer.backward_onto(dev, std::move(dy), std::move(onto), tape);
  else return sum_of(dev, layer.backward(dev, std::move(dy), tape), std::move(onto));
}

/// Holds a layer of any type, with a name for messages.
template <class Dev>
class AnyLayer : public detail::AddsOnto<Dev, AnyLayer<Dev>> {
 public:
  template <class L>
  AnyLayer(std::string name, L layer) : name_(std::move(name)) {
    detail::require_layer<L, Dev>();
    // Unlike make_unique, this compiles no pointer class for each L.
    model_.reset(new Model<L>(std::move(layer)));
  }

  [[nodiscard]] const std::string& name() const { return name_; }

  Tensor<Dev> forward(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) {
    const auto began = tape.mark();
    auto y = detail::in_layer(dev, name_, "output", tape,
                              [&] { return model_->forward(dev, std::move(x), tape); });
    tape.end_of_forward(began);
    return y;
  }
  Tensor<Dev> backward_onto(Dev& dev, Tensor<Dev> dy, Tensor<Dev> onto, Tape<Dev>& tape) {
    return tape.backward_of(name_, [&] {
      return detail::in_layer(dev, name_, "input gradient", tape, [&] {
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
