// Both example models trained on the GPU and on the Cpu. Heads are as wide as BERT's, so that in 16 bits, without
// dropout, the model uses the library's attention.
#include <examples/resnet50/model.hpp>
#include <tests/cuda/all_ops.hpp>
#include <tests/cuda/gpu.hpp>
#include <tests/support/everything.hpp>
#include <tests/support/layouts.hpp>

namespace {

#ifdef __CUDACC__
constexpr int steps = 20;
#else
constexpr int steps = 4;  // few, because emulation is slow
#endif

struct Bert {
  double dropout = 0;

  template <class Dev>
  Model<Dev> model(ModelBuilder<Dev>& build) const {
    return examples::bert(build, {.layers = 2,
                                  .hidden = 128,
                                  .heads = 2,
                                  .vocabulary = 64,
                                  .positions = everything_length,
                                  .sequence_length = everything_length,
                                  .dropout = dropout});
  }
  template <class Dev>
  MicroBatch<Dev> batch(Dev& dev, DType) const {
    return everything_batch(dev, 0, 0, 64, 4);
  }
  OptimizerChoice optimizer = AdamWOptions{.weight_decay = 0.01};
  double learning_rate = 1e-3;
};

struct ResNet {
  static constexpr std::int64_t samples = 8, side = 16, classes = 10;

  template <class Dev>
  Model<Dev> model(ModelBuilder<Dev>& build) const {
    // Blocks start as the identity, so that few ReLUs are near 0. A ReLU within rounding of 0 may open on one device
    // only, and the losses then diverge. Without this option they differed by 5e-3 in step 4 (pixels of mean 4, rate
    // 0.05). On the Cpu in f64, a change of the pixels by one ulp of f32 made the same difference.
    return examples::resnet(
        build,
        {.depth = 14, .width = 8, .image_size = side, .classes = classes, .zero_init_gamma = true});
  }
  template <class Dev>
  MicroBatch<Dev> batch(Dev& dev, DType compute) const {
    const RandomStream random{99, 0, 1};
    const Shape shape{samples, side, side, 3};
    std::vector<float> pixels;
    for (std::int64_t at = 0; at < shape.count(); ++at)
      pixels.push_back(static_cast<float>(random.normal(static_cast<std::uint64_t>(at))));
    std::vector<std::int32_t> labels;
    for (std::int64_t n = 0; n < samples; ++n)
      labels.push_back(static_cast<std::int32_t>(n % classes));
    MicroBatch<Dev> batch;
    batch.samples = samples;
    batch.input = Tensor<Dev>(dev, compute, shape);
    cast(dev, Tensor<Dev>::from_host(dev, shape, pixels).view(), batch.input.mut());
    batch.side.emplace_back("labels", Tensor<Dev>::from_host(dev, {samples}, labels));
    batch.counts = {{"samples", samples}};
    return batch;
  }
  OptimizerChoice optimizer = SgdOptions{.momentum = 0.9};
  double learning_rate = 0.01;
};

template <class Dev, class What>
std::vector<double> losses(Dev& dev, const What& what, DType compute) {
  return run_alone(
             dev,
             {.compute = compute,
              .optimizer = what.optimizer,
              .steps = steps,
              .micro_batches = 1,
              .lr = what.learning_rate},
             [&](ModelBuilder<Dev>& build) { return what.model(build); },
             [&](Dev& any, int, std::int64_t) { return what.batch(any, compute); })
      .losses;
}

double largest_difference(const std::vector<double>& found, const std::vector<double>& expected) {
  double largest = 0;
  for (std::size_t step = 0; step < expected.size(); ++step)
    largest = std::max(largest, std::abs(found[step] - expected[step]) / std::abs(expected[step]));
  return found.size() == expected.size() ? largest : NAN;
}

void check_against_cpu(const auto& what) {
  Gpu gpu;
  Cpu cpu;
  const auto expected = losses(cpu, what, DType::f32);
  CHECK(expected.back() < expected.front());
  CHECK(largest_difference(losses(gpu, what, DType::f32), expected) < 1e-3);
  CHECK(largest_difference(losses(gpu, what, DType::bf16), expected) < 2e-2);
}

}  // namespace

TEST_CASE("training: BERT without dropout agrees with the Cpu") { check_against_cpu(Bert{}); }
TEST_CASE("training: BERT with dropout agrees with the Cpu") { check_against_cpu(Bert{0.1}); }
TEST_CASE("training: ResNet agrees with the Cpu") { check_against_cpu(ResNet{}); }
