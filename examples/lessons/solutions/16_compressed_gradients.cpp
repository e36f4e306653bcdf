// Solutions of lesson 16. 1: from how many ranks on signs save no bytes. 2: signs without an error memory.
#include <dhp/extra/all_training_options.hpp>

#include "toy.hpp"

using toy::Dev;

// A user-written compressor: sends signs and forgets the rest. The type of its options names it.
struct ForgetfulBit {};
class ForgetfulCompressor {
 public:
  ForgetfulCompressor(Dev& dev, const dhp::CompressedGradients<Dev>& gradients, int replicas,
                      std::uint64_t seed, ForgetfulBit)
      : inner_(dev, gradients, replicas, seed, {}) {}
  void sum(Dev& dev, dhp::Comm<Dev>& group, const dhp::CompressedGradients<Dev>& gradients) {
    inner_.sum(dev, group, gradients);
    for (const auto& gradient : gradients)
      dev.fill_zero(gradient.unsent.bytes(), gradient.unsent.size_bytes());
  }

 private:
  dhp::detail::OneBitCompressor<Dev> inner_;
};
dhp::CompressedReducer<Dev, ForgetfulCompressor> make_reducer(Dev& dev,
                                                              dhp::ParameterStore<Dev>& store,
                                                              dhp::Comm<Dev> group,
                                                              ForgetfulBit options) {
  return {dev, store, std::move(group), options};
}

/// Two replicas have one gradient each, the same in every step. Returns the relative error |mean - true| / |true| of
/// the mean of the sums after `steps` steps.
double mean_error(dhp::Comm<Dev> world, auto options, int steps) {
  Dev dev;
  dhp::ModelBuilder<Dev> build(dhp::Comm<Dev>{});
  const auto weight = build.parameter({.name = "weight", .shape = {32, 32}});
  dhp::ParameterStore<Dev> store(dev, {weight}, {});
  auto reducer = make_reducer(dev, store, world, options);
  const auto mine = toy::noise(dev, {32, 32}, world.rank());
  auto mean = dhp::Tensor<Dev>::zeros(dev, dhp::DType::f32, {32, 32});
  for (int step = 0; step < steps; ++step) {
    reducer.begin({});
    const auto gradient = store.gradients(weight->range);
    dev.copy(gradient.bytes(), mine.view().bytes(), mine.size_bytes());
    reducer.ready(weight->range);
    reducer.finish();
    axpy(dev, 1.0 / steps, gradient, mean.mut());
  }
  const auto first = toy::noise(dev, {32, 32}, 0).to_host<float>(dev);
  const auto second = toy::noise(dev, {32, 32}, 1).to_host<float>(dev);
  double error = 0, length = 0;
  const auto found = mean.to_host<float>(dev);
  for (std::size_t at = 0; at < found.size(); ++at) {
    const double expected = static_cast<double>(first[at]) + second[at];
    error += (found[at] - expected) * (found[at] - expected);
    length += expected * expected;
  }
  return std::sqrt(error / length);
}

int main() {
  // Exercise 1. Signs travel by an all-gather: a rank receives the signs of all others.
  constexpr std::int64_t elements = 1 << 20;
  int even = 0;
  for (int ranks = 2; even == 0; ++ranks)
    if (dhp::sent_bytes(dhp::CallKind::all_gather, elements / 8, ranks) >=
        dhp::sent_bytes(dhp::CallKind::all_reduce, 4 * elements, ranks))
      even = ranks;
  std::printf("signs are as many bytes as fp32 with %d ranks\n", even);

  // Exercise 2.
  const auto error = [](auto options, int steps) {
    return toy::on_each_rank(2, mean_error<decltype(options)>, options, steps)[0];
  };
  std::printf("error of the mean   with memory   without\n");
  for (const int steps : {1, 10, 100})
    std::printf("after %3d steps      %.4f        %.4f\n", steps, error(dhp::OneBit{}, steps),
                error(ForgetfulBit{}, steps));
  const bool bounded = error(dhp::OneBit{}, 100) < 0.03 && error(ForgetfulBit{}, 100) > 0.3;
  return toy::status(even == 64 && bounded);
}
