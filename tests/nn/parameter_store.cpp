// Flat buffers: ranges of parameters, initial values, exact sums.
#include <dhp/cpu.hpp>
#include <dhp/device/meta.hpp>
#include <dhp/nn/batch_norm.hpp>
#include <dhp/nn/conv2d.hpp>
#include <dhp/nn/embedding.hpp>
#include <dhp/nn/layer_norm.hpp>
#include <dhp/nn/linear.hpp>
#include <dhp/nn/parameter_store.hpp>
#include <tests/support/tensors.hpp>

namespace {

Parameter<Cpu> parameter(ModelBuilder<Cpu>& build, const char* name, const Shape& shape,
                         Initializer init = constant(0)) {
  return build.parameter({.name = name, .shape = shape, .init = init});
}

std::vector<double> values_of(Cpu& dev, ConstView<Cpu> view) { return widened(clone(dev, view)); }

}  // namespace

TEST_CASE("store: parameters are in list order, aligned to 64 bytes") {
  Cpu dev;
  for (const auto compute : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    ModelBuilder<Cpu> build(Comm<Cpu>{});
    const ParameterList<Cpu> list{parameter(build, "a", {3, 5}, constant(1)),
                                  parameter(build, "b", {33}, constant(2)),
                                  parameter(build, "c", {1}, constant(3))};
    ParameterStore<Cpu> store(dev, list, {.compute = compute});
    CHECK(store.size() == 32 + 64 + 32);
    const std::int64_t first[] = {0, 32, 96};
    for (std::size_t at = 0; at < list.size(); ++at) {
      CHECK(list[at]->range.first == first[at]);
      CHECK(list[at]->range.size() == list[at]->spec.shape.count());
      CHECK(list[at]->value.dtype() == compute);
      CHECK(reinterpret_cast<std::uintptr_t>(list[at]->value.bytes()) % 64 == 0);
      CHECK(reinterpret_cast<std::uintptr_t>(list[at]->gradient.bytes()) % 64 == 0);
      for (const double value : values_of(dev, list[at]->value))
        CHECK(value == static_cast<double>(at + 1));
    }
    for (const double value : values_of(dev, store.gradients({0, store.size()}))) CHECK(value == 0);
  }
}

TEST_CASE("store: a step's first contribution overwrites; gradients without any are zeroed") {
  Cpu dev;
  for (const auto& [deterministic, buffer] :
       {std::pair(false, false), {false, true}, {true, false}}) {
    INFO("deterministic ", deterministic, " buffer ", buffer);
    ModelBuilder<Cpu> build(Comm<Cpu>{});
    const ParameterList<Cpu> list{
        parameter(build, "a", {3}), parameter(build, "b", {2}), parameter(build, "c", {4}),
        build.parameter({.name = "running", .shape = {2}, .buffer = buffer})};
    ParameterStore<Cpu> store(dev, list, {.deterministic = deterministic});
    std::vector<double> betas;
    const auto write = [&](View<Cpu> view, double beta) {
      betas.push_back(beta);
      if (beta == 0) fill(dev, view, 1);
      else
        axpy(dev, 1,
             Tensor<Cpu>::from_host(dev, view.shape(),
                                    std::vector<float>(static_cast<std::size_t>(view.count()), 1)),
             view);
    };
    for (int step = 0; step < 2; ++step) {
      betas.clear();
      if (!deterministic)
        for (std::size_t at = 0; at < 3; ++at)
          fill(dev, store.gradients(list[at]->range), std::nan(""));
      store.begin_gradients(dev);
      list[0]->accumulate(dev, write);
      // One of the two parameters already has a contribution.
      dhp::detail::accumulate_all(dev, {list[0], list[1]}, [&](const auto& views, double beta) {
        for (const auto& view : views) write(view, beta);
      });
      list[3]->accumulate(dev, write);
      store.complete_gradients(dev, {0, store.size()});
      store.finalize_gradients(dev, {0, store.size()});
      CHECK(betas == (deterministic ? std::vector<double>{0, 0, 0, 0}
                                    : std::vector<double>{0, 1, 1, buffer ? 1.0 : 0.0}));
      CHECK(values_of(dev, list[0]->gradient) == std::vector<double>{2, 2, 2});
      CHECK(values_of(dev, list[1]->gradient) == std::vector<double>{1, 1});
      CHECK(values_of(dev, list[2]->gradient) == std::vector<double>(4));
      CHECK(values_of(dev, list[3]->gradient) == std::vector<double>{1, 1});
    }
    store.zero_gradients(dev);
    list[0]->accumulate(dev, write);
    CHECK(betas.back() == (deterministic ? 0 : 1));
  }
}

TEST_CASE("store: a handle that occurs twice has memory once") {
  Cpu dev;
  ModelBuilder<Cpu> build(Comm<Cpu>{});
  const auto tied = parameter(build, "tied", {4, 4});
  ParameterStore<Cpu> store(dev, {tied, parameter(build, "other", {2}), tied}, {});
  CHECK(store.parameters().size() == 2);
  CHECK(store.size() == 64);
}

TEST_CASE("store: a parameter of another store is refused, and is free after that one has ended") {
  Cpu dev;
  ModelBuilder<Cpu> build(Comm<Cpu>{});
  const auto weight = parameter(build, "weight", {4, 4});
  {
    ParameterStore<Cpu> first(dev, {weight}, {});
    ParameterStore<Cpu> store = std::move(first);
    CHECK(message_of([&] { ParameterStore<Cpu>(dev, {weight}, {}); }) ==
          "parameter weight is in the store of another model, which would lose it: make layers for "
          "each model");
    CHECK(weight->value.bytes() == store.parameters()[0]->value.bytes());
  }
  CHECK(ParameterStore<Cpu>(dev, {weight}, {}).parameters().size() == 1);
}

TEST_CASE("store: keep_fp32 parameters and buffers have the accumulation type") {
  Cpu dev;
  ModelBuilder<Cpu> build(Comm<Cpu>{});
  const ParameterList<Cpu> list{build.parameter({.name = "weight", .shape = {2}}),
                                build.parameter({.name = "norm", .shape = {2}, .keep_fp32 = true}),
                                build.parameter({.name = "running", .shape = {2}, .buffer = true})};
  ParameterStore<Cpu> store(dev, list, {.compute = DType::bf16});
  CHECK(list[0]->value.dtype() == DType::bf16);
  CHECK(list[1]->value.dtype() == DType::f32);
  CHECK(list[2]->value.dtype() == DType::f32);
  for (const auto& each : list) CHECK(each->gradient.dtype() == DType::f32);
}

TEST_CASE("store: optimizers cover all trained parameters, norms those counted on this rank") {
  Cpu dev;
  ModelBuilder<Cpu> build(Comm<Cpu>{});
  const ParameterList<Cpu> list{
      build.parameter(split({.name = "split", .shape = {4, 3}}, 0, 2, 1)),
      build.parameter({.name = "bias", .shape = {5}, .decays = false}),
      build.parameter({.name = "running", .shape = {2}, .buffer = true}),
      build.parameter({.name = "norm", .shape = {7}, .decays = false, .keep_fp32 = true}),
      build.parameter(split({.name = "replica", .shape = {4, 2}}, 0, 2, 1)),
      build.parameter({.name = "whole", .shape = {dhp::detail::segment_tile + 1}})};
  list[4]->owned = false;
  ParameterStore<Cpu> store(dev, list, {.compute = DType::bf16});
  const auto check_table = [&](const dhp::detail::SegmentTable<Cpu>& table,
                               const std::vector<int>& expected) {
    REQUIRE(table.summed_parameters() == static_cast<std::int64_t>(expected.size()));
    for (std::size_t at = 0; at < expected.size(); ++at) {
      const auto& parameter = *list[static_cast<std::size_t>(expected[at])];
      const auto& sums = table.sums()[at];
      CHECK(sums.parameter == parameter.index);
      const auto& first = table.tiles()[sums.first];
      CHECK(first.first == parameter.range.first);
      CHECK(first.value == parameter.value.bytes());
      CHECK(first.decays == parameter.spec.decays);
      CHECK(first.narrow == !parameter.spec.keep_fp32);
      CHECK(table.tiles()[sums.last - 1].last == parameter.range.last);
    }
  };
  check_table(store.trained(), {0, 1, 3, 4, 5});
  check_table(store.counted(true), {0, 1, 3, 5});
  check_table(store.counted(false), {0});
}

TEST_CASE("store: weights of layers decay; biases and norms do not") {
  ModelBuilder<Cpu> build(Comm<Cpu>{});
  ParameterList<Cpu> list;
  Linear<Cpu>(build, "linear", {.in = 2, .out = 2}).parameters(list);
  Conv2d<Cpu>(build, "conv", {.in = 2, .out = 2}).parameters(list);
  Embedding<Cpu>(build, "table", {.entries = 2, .columns = 2, .ids = "ids"}).parameters(list);
  LayerNorm<Cpu>(build, "norm", 2).parameters(list);
  BatchNorm<Cpu>(build, "norm2", {.channels = 2}).parameters(list);
  for (const auto& one : list)
    CHECK(one->spec.decays ==
          (one->spec.name.ends_with(".weight") && !has(one->spec.name, "norm")));
}

TEST_CASE("store: without initial values all parameters are zero, also norms") {
  Cpu dev;
  ModelBuilder<Cpu> build(Comm<Cpu>{});
  const ParameterList<Cpu> list{parameter(build, "w", {5, 7}, normal(1)),
                                parameter(build, "gamma", {7}, constant(1))};
  const ParameterStore<Cpu> store(dev, list, {.seed = 9, .initialize = false});
  for (const auto& one : list)
    for (const double value : values_of(dev, one->value)) CHECK(value == 0);
}

TEST_CASE("store: an exact sum that overflows is NaN until gradients are zeroed") {
  Cpu dev;
  ModelBuilder<Cpu> build(Comm<Cpu>{});
  const auto weight = parameter(build, "w", {2});
  ParameterStore<Cpu> store(dev, {weight}, {.deterministic = true});
  const auto add = [&](double value) {
    weight->accumulate(dev, [&](View<Cpu> gradient, double) { fill(dev, gradient, value); });
    store.finalize_gradients(dev, weight->range);
    return *weight->gradient.data<float>();
  };
  CHECK(add(1) == 1.0f);
  CHECK(std::isnan(add(std::numeric_limits<float>::infinity())));
  CHECK(std::isnan(add(1)));
  store.zero_gradients(dev);
  CHECK(add(2) == 2.0f);
}

TEST_CASE("store: a tensor is accumulated if it has the accumulation type") {
  Cpu dev;
  ModelBuilder<Cpu> build(Comm<Cpu>{});
  const auto weight = parameter(build, "w", {2});
  ParameterStore<Cpu> store(dev, {weight}, {.compute = DType::bf16});
  const auto add = [&](auto value) {
    weight->accumulate(dev, Tensor<Cpu>::from_host(dev, {2}, std::vector{value, value}));
    return *weight->gradient.data<float>();
  };
  CHECK(add(1.0F) == 1);
  CHECK(message_of([&] { (void)add(1.0); }) == "the gradients of parameter w are f32, and not f64");
}

TEST_CASE("store: accumulating into a parameter without memory is refused") {
  Cpu dev;
  ModelBuilder<Cpu> build(Comm<Cpu>{});
  const auto weight = parameter(build, "elsewhere", {2});
  CHECK(message_of([&] { weight->accumulate(dev, [](View<Cpu>, double) {}); }) ==
        "parameter elsewhere has no memory on this rank");
}

TEST_CASE("store: from ZeRO 2 on, buckets are at most 1/32 of the gradients") {
  const auto buckets = [](ZeroStage stage, std::int64_t rows, std::size_t least) {
    Meta dev;
    ModelBuilder<Meta> build(Comm<Meta>{});
    ParameterList<Meta> list;
    for (int at = 0; at < 64; ++at)
      list.push_back(build.parameter({.name = concat(at), .shape = {rows, 1024}}));
    return ParameterStore<Meta>(dev, list, {.sharding = {stage, least}}, {0, 2}).buckets().size();
  };
  constexpr std::size_t usual = Sharding{}.bucket_bytes;
  CHECK(buckets(ZeroStage::optimizer, 256, usual) == 3);
  CHECK(buckets(ZeroStage::gradients, 256, usual) == 32);
  CHECK(buckets(ZeroStage::weights, 256, usual) == 32);
  CHECK(buckets(ZeroStage::weights, 16, usual) == 4);  // at least 1 MiB
  CHECK(buckets(ZeroStage::weights, 256, 1) == 64);
}
