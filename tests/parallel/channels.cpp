// Between split and whole channels: what is gathered is what was scattered, and each is the other's
// backward.
#include <dhp/comm/launch.hpp>
#include <dhp/cpu.hpp>
#include <dhp/parallel/channels.hpp>
#include <tests/support/tensors.hpp>

#include <doctest/doctest.h>

using namespace dhp;
using namespace tests;

static_assert(Layer<GatherChannels<Cpu>, Cpu>);
static_assert(Layer<ScatterChannels<Cpu>, Cpu>);

namespace {

// Runs body(dev, build) on each rank of a tensor axis; it throws where something is wrong.
template <class Body>
void on_tensor_ranks(int ranks, Body body) {
  run_ranks(ranks,
            [&](Comm<Cpu> world) {
              Cpu dev;
              Build<Cpu> build;
              build.tensor = std::move(world);
              body(dev, build);
            },
            {.timeout_s = 60});
}

const std::vector<Shape> shapes{{3, 2, 2, 8}, {2, 1, 3, 7}, {5, 4}};

}  // namespace

TEST_CASE_TEMPLATE("scattered and gathered channels are what they were", T, double, float, bf16) {
  for (const int ranks : {1, 2, 3, 4})
    for (const auto& shape : shapes)
      on_tensor_ranks(ranks, [&](Cpu& dev, Build<Cpu>& build) {
        const auto channels = shape.back();
        ScatterChannels<Cpu> scatter(build, channels);
        GatherChannels<Cpu> gather(build, channels);
        Tape<Cpu> tape({});
        const MicroBatch<Cpu> batch;
        const auto x = random_tensor<T>(dev, shape, 1);
        auto split = scatter.forward(dev, x.share(), tape);
        const auto part = part_of(channels, build.tensor.size(), build.tensor.rank());
        check(split.shape() == scatter.output_shape(shape, batch), "scatter: ", split.shape());
        check(split.columns() == part.size(), "scatter: ", split.shape());
        for (std::int64_t row = 0; row < split.rows(); ++row)
          for (std::int64_t c = 0; c < part.size(); ++c)
            check(widened(split)[static_cast<std::size_t>(row * part.size() + c)] ==
                      widened(x)[static_cast<std::size_t>(row * channels + part.first + c)],
                  "scatter: row ", row, " channel ", c);
        const auto split_shape = split.shape();
        const auto whole = gather.forward(dev, split.share(), tape);
        check(gather.output_shape(split_shape, batch) == shape, "gather: its output shape");
        check(whole.shape() == shape, "gather: ", whole.shape());
        check(widened(whole) == widened(x), "gather after scatter is not the identity");
        // Each is the other's backward.
        const auto back = scatter.backward(dev, split.share(), tape);
        check(widened(back) == widened(x), "the backward of scatter is not gather");
        const auto forth = gather.backward(dev, x.share(), tape);
        check(widened(forth) == widened(split), "the backward of gather is not scatter");
        check(tape.empty(), "something was kept");
      });
}

TEST_CASE("the gradient through scatter and gather is the numerical one") {
  // sum over ranks of <scatter(x), a_r> has gradient gather(a).
  on_tensor_ranks(2, [](Cpu& dev, Build<Cpu>& build) {
    ScatterChannels<Cpu> scatter(build, 5);
    auto x = random_tensor<double>(dev, {4, 5}, 2);
    const auto weight = random_tensor<double>(dev, {4, 5}, 3);
    Tape<Cpu> tape({});
    const auto mine = scatter.forward(dev, weight.share(), tape);
    const auto loss = [&] {
      const auto y = scatter.forward(dev, clone(dev, x.view()), tape);
      auto sum = Tensor<Cpu>::from_host(dev, {1}, std::vector<double>{weighted_sum(y, mine)});
      build.tensor.all_reduce(dev, sum.mut()).wait();
      return sum.to_host<double>(dev)[0];
    };
    const auto expected = numerical_gradient(x, loss);
    const auto dx = scatter.backward(dev, mine.share(), tape);
    check(distance(widened(dx), expected) < 1e-6, "scatter: another gradient");
  });
}
