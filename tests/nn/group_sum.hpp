// Layers split over the tensor axis, evenly or not, have the outputs and gradients of one rank. On any device.
#pragma once

#include <dhp/nn/activation.hpp>
#include <dhp/nn/channels.hpp>
#include <dhp/nn/conv2d.hpp>
#include <dhp/nn/embedding.hpp>
#include <dhp/nn/feed_forward.hpp>
#include <dhp/nn/gated_feed_forward.hpp>
#include <dhp/nn/layer_norm.hpp>
#include <dhp/nn/sequential.hpp>
#include <tests/support/layouts.hpp>

namespace tests {

template <class Dev>
class TensorCases {
 public:
  static void check_all() {
    for (const auto check : {column_parallel, row_parallel, column_and_row, feed_forward,
                             gated_feed_forward, embedding, convolutions})
      check();
  }

 private:
  static void column_parallel() {
    check_split({.output = Side::split, .in = {6, 5}}, [](ModelBuilder<Dev>& build) {
      build.place({{"l.*", Placement::columns}});
      return Linear<Dev>(build, "l", {.in = 5, .out = 7, .bias_init = normal(1)});
    });
    // A layer with the weight of another layer, and perhaps its own bias.
    for (const bool bias : {true, false})
      check_split({.output = Side::split, .in = {6, 5}}, [bias](ModelBuilder<Dev>& build) {
        build.place({{"*", Placement::words}});
        const Linear<Dev> other(build, "other", {.in = 5, .out = 7});
        return Linear<Dev>(build, "l", other.weights(), {.bias = bias});
      });
  }

  static void row_parallel() {
    check_split({.input = Side::split, .in = {6, 7}}, [](ModelBuilder<Dev>& build) {
      build.place({{"l.weight", Placement::rows}, {"l.bias", Placement::replicated}});
      return Linear<Dev>(build, "l", {.in = 7, .out = 5, .bias_init = normal(1)});
    });
  }

  static void column_and_row() {
    const auto pair = [](ModelBuilder<Dev>& build, Sequential<Dev> layers) {
      layers.add("column", Linear<Dev>(build, "column", {.in = 5, .out = 11}))
          .add("gelu", gelu<Dev>())
          .add("row", Linear<Dev>(build, "row", {.in = 11, .out = 5}));
      return layers;
    };
    const Placements placements{{"column.*", Placement::columns},
                                {"row.weight", Placement::rows},
                                {"*", Placement::replicated}};
    check_split({.in = {6, 5}}, [&](ModelBuilder<Dev>& build) {
      build.place(placements);
      return pair(build, {});
    });
    check_split({.in = {6, 5}}, [&](ModelBuilder<Dev>& build) {  // half a block, norm first
      build.place(placements);
      Sequential<Dev> norm;
      norm.add("norm", LayerNorm<Dev>(build, "norm", 5));
      return Residual<Dev>(pair(build, std::move(norm)));
    });
  }

  static void feed_forward() {
    const Placements split{{"first.*", Placement::columns},
                           {"second.weight", Placement::rows},
                           {"second.bias", Placement::replicated}};
    for (const auto& placements : {split, Placements{}})  // without a table, all is replicated
      check_split({.in = {6, 5}}, [&](ModelBuilder<Dev>& build) {
        build.place(placements);
        return FeedForward<Dev>(build, "first", "second", {.columns = 5, .inner = 11});
      });
  }

  static void gated_feed_forward() {
    check_split({.in = {6, 5}}, [&](ModelBuilder<Dev>& build) {
      build.place({{"{gate,up}.*", Placement::columns},
                   {"down.weight", Placement::rows},
                   {"down.bias", Placement::replicated}});
      return GatedFeedForward<Dev>(build, "gate", "up", "down",
                                   {.columns = 5, .inner = 11, .bias = true});
    });
  }

  static void embedding() {
    check_split({}, [](ModelBuilder<Dev>& build) {
      build.place({{"e.weight", Placement::words}});
      return Embedding<Dev>(build, "e", {.entries = 7, .columns = 4, .ids = "ids"});
    });
  }

  static void convolutions() {
    const Conv2dOptions options{.in = 5, .out = 7, .kernel = 3, .stride = 2, .padding = 1};
    check_split({.output = Side::split, .in = {2, 5, 4, 5}}, [&](ModelBuilder<Dev>& build) {
      build.place({{"c.weight", Placement::columns}});
      return Conv2d<Dev>(build, "c", options);
    });
    check_split({.input = Side::split, .in = {2, 5, 4, 5}}, [&](ModelBuilder<Dev>& build) {
      build.place({{"c.weight", Placement::rows}});
      return Conv2d<Dev>(build, "c", options);
    });
  }

  enum class Side { whole, split };

  /// How x and y of a layer are split, and the unsplit shape of x.
  struct Ends {
    Side input = Side::whole;
    Side output = Side::whole;
    Shape in;
  };
  using Tensors = std::map<std::string, std::vector<double>>;

  // Runs one forward and backward pass with given x and dy on `ranks` ranks.
  template <class Make>
  static Tensors pass(int ranks, const Ends& ends, Make make) {
    Tensors found;
    std::mutex mutex;
    on_ranks_of<Dev>(ranks, [&](Dev& dev, Comm<Dev> world) {
      ModelBuilder<Dev> build(world);
      auto layer = make(build);
      ParameterList<Dev> parameters;
      layer.parameters(parameters);
      ParameterStore<Dev> store(dev, parameters, {.compute = DType::f64, .seed = 4});
      MicroBatch<Dev> batch;
      batch.samples = 3;
      batch.side.emplace_back(
          "ids", Tensor<Dev>::from_host(dev, {6}, std::vector<std::int32_t>{0, 6, 3, 3, 5, 1}));
      Tape<Dev> tape({}, &batch);
      auto& group = build.tensor;

      const auto in = [&](Tensor<Dev> whole) {
        return ends.input == Side::split ? dhp::detail::take_part(dev, group, whole, 1)
                                         : std::move(whole);
      };
      Tensor<Dev> x;
      if (ends.in.rank() > 0) x = in(random_tensor(dev, DType::f64, ends.in, 1));
      auto y = layer.forward(dev, x.share(), tape);
      check(y.shape() == layer.output_shape(x.shape(), batch), "the output has shape ", y.shape());
      std::int64_t columns = y.columns();
      if (ends.output == Side::split) {
        auto total = Tensor<Dev>::from_host(dev, {1}, std::vector<std::int64_t>{columns});
        group.all_reduce(dev, total.mut()).wait();
        columns = total.template to_host<std::int64_t>(dev)[0];
        y = gather_parts(dev, group, y, columns);
      }
      auto dy = random_tensor(dev, DType::f64, y.shape(), 2);
      if (ends.output == Side::split) dy = dhp::detail::take_part(dev, group, dy, 1);
      auto dx = layer.backward(dev, dy.share(), tape);
      if (ends.input == Side::split) dx = gather_parts(dev, group, dx, ends.in.back());
      Tensor<Dev> sum;  // dx plus a gradient that ranks hold whole or in parts
      if (dx) {
        static_cast<void>(layer.forward(dev, x.share(), tape));
        sum = backward_onto(dev, layer, std::move(dy),
                            in(random_tensor(dev, DType::f64, ends.in, 3)), tape);
        if (ends.input == Side::split) sum = gather_parts(dev, group, sum, ends.in.back());
      }

      const std::lock_guard lock(mutex);
      // Checks that every rank finds the same values.
      const auto note = [&](const std::string& name, std::vector<double> values) {
        const auto [at, fresh] = found.try_emplace(name, values);
        check(fresh || distance(values, at->second) < 1e-12, name, " differs between ranks");
      };
      note("output", widened(dev, y));
      if (dx) note("input gradient", widened(dev, dx));
      if (dx) {
        auto expected = widened(dev, dx);
        const auto onto = widened(dev, random_tensor(dev, DType::f64, ends.in, 3));
        for (std::size_t at = 0; at < onto.size(); ++at) expected[at] += onto[at];
        check(distance(expected, widened(dev, sum)) < 1e-12,
              "the input gradient added onto another");
      }
      for (const auto& parameter : store.parameters()) {
        const auto gradient = widened(dev, parameter->gradient);
        if (parameter->spec.is_split())
          place_part(parameter->spec, gradient, found[parameter->spec.name]);
        else note(parameter->spec.name, gradient);
      }
    });
    return found;
  }

  template <class Make>
  static void check_split(const Ends& ends, Make make) {
    const auto serial = pass(1, ends, make);
    for (const int ranks : {2, 3, 4}) {
      CAPTURE(ranks);
      const auto apart = difference(serial, pass(ranks, ends, make));
      CHECK_MESSAGE(apart.worst < 1e-12, apart.tensor);
    }
  }
};

}  // namespace tests
