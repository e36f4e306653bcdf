// Gathering channels is the inverse of scattering them, and each is the other's backward pass. On any device.
#pragma once

#include <dhp/nn/channels.hpp>
#include <tests/support/device_ranks.hpp>

namespace tests {

template <class Dev>
class ChannelCases {
 public:
  template <class T>
  static void there_and_back() {
    const std::vector<Shape> shapes{{3, 2, 2, 8}, {2, 1, 3, 7}, {5, 4}};
    for (const int ranks : {1, 2, 3, 4})
      for (const auto& shape : shapes)
        on_tensor_ranks(ranks, [&](Dev& dev, ModelBuilder<Dev>& build) {
          const auto channels = shape.back();
          ScatterChannels<Dev> scatter(build, channels, Placement::rows);
          GatherChannels<Dev> gather(build, channels, Placement::columns);
          Tape<Dev> tape({});
          const MicroBatch<Dev> batch;
          const auto x = random_tensor(dev, dtype_of<T>(), shape, 1);
          const auto values = widened(dev, x);
          auto split = scatter.forward(dev, x.share(), tape);
          const auto parts = widened(dev, split);
          const auto part = part_of(channels, build.tensor.size(), build.tensor.rank());
          check(split.shape() == scatter.output_shape(shape, batch), "scatter: ", split.shape());
          check(split.columns() == part.size(), "scatter: ", split.shape());
          for (std::int64_t row = 0; row < split.rows(); ++row)
            for (std::int64_t c = 0; c < part.size(); ++c)
              check(parts[static_cast<std::size_t>(row * part.size() + c)] ==
                        values[static_cast<std::size_t>(row * channels + part.first + c)],
                    "scatter: row ", row, " channel ", c);
          const auto split_shape = split.shape();
          const auto whole = gather.forward(dev, split.share(), tape);
          check(gather.output_shape(split_shape, batch) == shape, "gather: its output shape");
          check(whole.shape() == shape, "gather: ", whole.shape());
          check(widened(dev, whole) == values, "gather after scatter is not the identity");
          // Each is the other's backward pass.
          const auto back = scatter.backward(dev, split.share(), tape);
          check(widened(dev, back) == values, "the backward of scatter is not gather");
          const auto forth = gather.backward(dev, x.share(), tape);
          check(widened(dev, forth) == parts, "the backward of gather is not scatter");
          check(tape.empty(), "something was kept");
        });
  }

 private:
  static_assert(Layer<GatherChannels<Dev>, Dev>);
  static_assert(Layer<ScatterChannels<Dev>, Dev>);

  // Runs body(dev, build) on each rank of a tensor axis; body throws if a check fails.
  template <class Body>
  static void on_tensor_ranks(int ranks, Body body) {
    on_ranks_of<Dev>(ranks, [&](Dev& dev, Comm<Dev> world) {
      ModelBuilder<Dev> build(world);
      body(dev, build);
    });
  }
};

}  // namespace tests
