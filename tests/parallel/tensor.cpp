// Layers split over the tensor axis against the same layer on one rank: outputs, input gradients
// and the gradients of every weight, also where the parts are uneven.
#include <dhp/comm/launch.hpp>
#include <dhp/cpu.hpp>
#include <dhp/nn/activation.hpp>
#include <dhp/nn/sequential.hpp>
#include <dhp/parallel/channels.hpp>
#include <dhp/parallel/tensor.hpp>
#include <tests/support/layouts.hpp>
#include <tests/support/tensors.hpp>

#include <doctest/doctest.h>

#include <map>
#include <mutex>

using namespace dhp;
using namespace tests;

namespace {

enum class Side { whole, split };

/// What a layer with these ends does, as unsplit tensors.
struct Ends {
  Side input = Side::whole;
  Side output = Side::whole;
  Shape in;
};
using Tensors = std::map<std::string, std::vector<double>>;

// One forward and backward pass with given x and dy on `ranks` ranks.
template <class Make>
Tensors pass(int ranks, const Ends& ends, Make make) {
  Tensors found;
  std::mutex mutex;
  run_ranks(
      ranks,
      [&](Comm<Cpu> world) {
        Cpu dev;
        Build<Cpu> build;
        build.compute = DType::f64;
        build.tensor = std::move(world);
        auto layer = make(build);
        ParameterList<Cpu> parameters;
        layer.parameters(parameters);
        ParameterStore<Cpu> store(dev, parameters, {.compute = DType::f64, .seed = 4});
        MicroBatch<Cpu> batch;
        batch.samples = 3;
        batch.side.emplace_back(
            "ids", Tensor<Cpu>::from_host(dev, {6}, std::vector<std::int32_t>{0, 6, 3, 3, 5, 1}));
        Tape<Cpu> tape({.batch = &batch});
        auto& group = build.tensor;

        Tensor<Cpu> x;
        if (ends.in.rank() > 0) x = random_tensor<double>(dev, ends.in, 1);
        auto y = layer.forward(
            dev, ends.input == Side::split ? take_part(dev, group, x) : x.share(), tape);
        check(y.shape() ==
                  layer.output_shape(
                      ends.input == Side::split ? take_part(dev, group, x).shape() : x.shape(),
                      batch),
              "the output has shape ", y.shape());
        std::int64_t columns = y.columns();
        if (ends.output == Side::split) {
          auto total = Tensor<Cpu>::from_host(dev, {1}, std::vector<std::int64_t>{columns});
          group.all_reduce(dev, total.mut()).wait();
          columns = total.to_host<std::int64_t>(dev)[0];
          y = gather_parts(dev, group, y, columns);
        }
        auto dy = random_tensor<double>(dev, y.shape(), 2);
        if (ends.output == Side::split) dy = take_part(dev, group, dy);
        auto dx = layer.backward(dev, std::move(dy), tape);
        if (ends.input == Side::split) dx = gather_parts(dev, group, dx, ends.in.back());

        const std::lock_guard lock(mutex);
        // Every rank must find the same.
        const auto note = [&](const std::string& name, std::vector<double> values) {
          const auto [at, fresh] = found.try_emplace(name, values);
          check(fresh || distance(values, at->second) < 1e-12, name, " differs between ranks");
        };
        note("output", widened(y));
        if (dx) note("input gradient", widened(dx));
        for (const auto& parameter : store.parameters()) {
          const auto gradient = host_values(dev, parameter->gradient);
          if (parameter->spec.is_split())
            place_part(parameter->spec, gradient, found[parameter->spec.name]);
          else note(parameter->spec.name, gradient);
        }
      },
      {.timeout_s = 60});
  return found;
}

template <class Make>
void check_split(const Ends& ends, Make make) {
  const auto serial = pass(1, ends, make);
  for (const int ranks : {2, 3, 4}) {
    CAPTURE(ranks);
    const auto apart = difference(serial, pass(ranks, ends, make));
    CHECK_MESSAGE(apart.worst < 1e-12, apart.tensor);
  }
}

}  // namespace

TEST_CASE("column-parallel linear") {
  check_split({.output = Side::split, .in = {6, 5}}, [](Build<Cpu>& build) {
    return column_parallel_linear(build, "l", {.in = 5, .out = 7, .bias_init = normal(1)});
  });
}

TEST_CASE("row-parallel linear adds its bias once") {
  check_split({.input = Side::split, .in = {6, 7}}, [](Build<Cpu>& build) {
    return RowParallelLinear<Cpu>(build, "l", {.in = 7, .out = 5, .bias_init = normal(1)});
  });
}

TEST_CASE("column-parallel, activation, row-parallel") {
  check_split({.in = {6, 5}}, [](Build<Cpu>& build) {
    Sequential<Cpu> pair;
    pair.add("column", column_parallel_linear(build, "column", {.in = 5, .out = 11}))
        .add("gelu", gelu<Cpu>())
        .add("row", RowParallelLinear<Cpu>(build, "row", {.in = 11, .out = 5}));
    return pair;
  });
}

TEST_CASE("a feed-forward pair") {
  check_split({.in = {6, 5}}, [](Build<Cpu>& build) {
    return parallel_feed_forward(build, "first", "second", {.columns = 5, .inner = 11});
  });
}

TEST_CASE("vocabulary-parallel embedding") {
  check_split({}, [](Build<Cpu>& build) {
    return vocabulary_parallel_embedding(build, "e", {.entries = 7, .columns = 4, .ids = "ids"});
  });
}

TEST_CASE("a split bias") {
  check_split({.input = Side::split, .output = Side::split, .in = {6, 7}},
              [](Build<Cpu>& build) { return Bias<Cpu>(build, "b", 7, true); });
}

TEST_CASE("convolutions split by output and by input channels") {
  const Conv2dOptions options{.in = 5, .out = 7, .kernel = 3, .stride = 2, .padding = 1};
  check_split({.output = Side::split, .in = {2, 5, 4, 5}},
              [&](Build<Cpu>& build) { return column_parallel_conv2d(build, "c", options); });
  check_split({.input = Side::split, .in = {2, 5, 4, 5}},
              [&](Build<Cpu>& build) { return row_parallel_conv2d(build, "c", options); });
}
