// The check of layers' results: when off, it costs and changes nothing; when on, it names the innermost layer.
#include <dhp/cpu.hpp>
#include <dhp/nn/linear.hpp>
#include <dhp/nn/recompute.hpp>
#include <dhp/nn/sequential.hpp>
#include <tests/support/gradients.hpp>

namespace {

/// Nested layers outer > body > inner; inner's weight is not finite.
AnyLayer<Cpu> nested(ModelBuilder<Cpu>& build, bool recomputed) {
  Sequential<Cpu> body;
  body.add("fine", Linear<Cpu>(build, "fine", {.in = 2, .out = 2}));
  body.add("inner", Linear<Cpu>(build, "inner", {.in = 2, .out = 2}));
  Sequential<Cpu> outer;
  if (recomputed) outer.add("body", recompute<Cpu>(std::move(body)));
  else outer.add("body", std::move(body));
  return {"outer", std::move(outer)};
}

std::string first_nonfinite(bool recomputed) {
  Cpu dev;
  ModelBuilder<Cpu> build(Comm<Cpu>{});
  auto layer = nested(build, recomputed);
  ParameterList<Cpu> parameters;
  layer.parameters(parameters);
  ParameterStore<Cpu> store(dev, parameters, {});
  for (const auto& parameter : parameters)
    if (parameter->spec.name == "inner.weight")
      fill(dev, parameter->value, std::numeric_limits<double>::infinity());
  dhp::detail::FirstNonFinite first;
  for (auto* looking : {static_cast<dhp::detail::FirstNonFinite*>(nullptr), &first}) {
    Tape<Cpu> tape({.first_nonfinite = looking});
    (void)layer.forward(dev, random_tensor<float>(dev, {3, 2}, 1), tape);
    CHECK(first.found == (looking != nullptr));
  }
  CHECK(first.checked == 1);
  return concat(first.what, " of ", first.layer);
}

}  // namespace

TEST_CASE("layers: the first layer with a non-finite output is named with its parents") {
  for (const bool recomputed : {false, true})
    CHECK(first_nonfinite(recomputed) == "output of outer > body > inner");
}

namespace {

/// A layer that runs out of memory.
struct Greedy : ElementwiseLayer<Cpu> {
  Tensor<Cpu> forward(Cpu&, Tensor<Cpu>, Tape<Cpu>&) { throw OutOfMemory(4096, "GPU 3"); }
  Tensor<Cpu> backward(Cpu&, Tensor<Cpu> dy, Tape<Cpu>&) { return dy; }
};

}  // namespace

TEST_CASE("layers: running out of memory names the bytes, the device and the layer") {
  Cpu dev;
  Sequential<Cpu> outer;
  outer.add("inner", Greedy{});
  AnyLayer<Cpu> layer("outer", std::move(outer));
  Tape<Cpu> tape({});
  const auto message = message_of([&] {
    (void)layer.forward(dev, random_tensor<float>(dev, {2, 2}, 1), tape);
  });
  CHECK(message.starts_with(
      "out of memory: cannot allocate 4096 bytes for a tensor of layer outer > inner in GPU 3; "));
  CHECK(message.find("a smaller micro-batch") != message.npos);
}

TEST_CASE("layers: a wrong shape is reported with the layer and its parents") {
  Cpu dev;
  ModelBuilder<Cpu> build(Comm<Cpu>{});
  for (const bool recomputed : {false, true}) {
    auto layer = nested(build, recomputed);
    Tape<Cpu> tape({});
    const auto error = message_of([&] {
      (void)layer.forward(dev, random_tensor<float>(dev, {3, 5}, 1), tape);
    });
    CHECK(error.starts_with("layer outer > body > fine: a layer with the weight fine.weight, "));
  }
}

namespace {

struct Own : std::exception {};
template <class Thrown>
struct Throws : ElementwiseLayer<Cpu> {
  Tensor<Cpu> forward(Cpu&, Tensor<Cpu>, Tape<Cpu>&) {
    if constexpr (std::is_constructible_v<Thrown, const char*>) throw Thrown("no such row");
    else throw Thrown();
  }
  Tensor<Cpu> backward(Cpu&, Tensor<Cpu> dy, Tape<Cpu>&) { return dy; }
};

}  // namespace

TEST_CASE("layers: standard exceptions get the layer's name, the program's own stay as they are") {
  Cpu dev;
  const auto thrown = [&](auto layer) {
    Sequential<Cpu> outer;
    outer.add("inner", layer);
    Tape<Cpu> tape({});
    (void)AnyLayer<Cpu>("outer", std::move(outer))
        .forward(dev, random_tensor<float>(dev, {2, 2}, 1), tape);
  };
  CHECK(message_of([&] { thrown(Throws<std::out_of_range>{}); }) ==
        "layer outer > inner: no such row");
  CHECK(message_of([&] { thrown(Throws<std::bad_function_call>{}); }) ==
        "layer outer > inner: bad_function_call");
  CHECK_THROWS_AS(thrown(Throws<Own>{}), Own);
}
