// Between split and whole channels on the Cpu.
#include <dhp/cpu.hpp>
#include <tests/parallel/channels.hpp>

using namespace tests;

TEST_CASE_TEMPLATE("scattered and gathered channels are what they were", T, double, float, bf16) {
  ChannelCases<Cpu>::there_and_back<T>();
}

TEST_CASE("the gradient through scatter and gather is the numerical one") {
  // sum over ranks of <scatter(x), a_r> has gradient gather(a).
  on_ranks_of<Cpu>(2, [](Cpu& dev, Comm<Cpu> world) {
    ModelBuilder<Cpu> build(world);
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
