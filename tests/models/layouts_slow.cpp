// The example models in layouts: each layout gives the serial run's numbers, with exact sums to the bit.
#include <examples/resnet50/model.hpp>
#include <tests/parallel/layouts.hpp>

#include "pictures.hpp"

namespace {

struct Named {
  const char* name;
  Layout layout;
};
const AnySchedule one_f_one_b = OneForwardOneBackward{};
const Named layouts[] = {
    {"replicas", {{.data = 2}}},
    {"uneven replicas", {{.data = 3}}},
    {"split weights", {{.tensor = 4}}},
    {"stages", {{.pipeline = 2}, GPipe{}}},
    {"chunks", {{.pipeline = 2}, Interleaved{}, 2}},
    {"there and back", {{.data = 2, .pipeline = 2}, ZeroBubbleV{}, 2}},
    {"replicas of split weights", {{.data = 2, .tensor = 2}}},
    {"stages of split weights", {{.tensor = 2, .pipeline = 3}, one_f_one_b}},
    {"all three axes", {{.data = 2, .tensor = 2, .pipeline = 2}, ZeroBubble{}}},
};

template <class MakeModel, class MakeBatch>
void check_models(double tolerance, const RunSettings& settings, MakeModel make_model,
                  MakeBatch make_batch) {
  const auto serial = run_layout({}, settings, make_model, make_batch);
  REQUIRE(serial.losses.back() < serial.losses.front());
  for (const auto& [name, layout] : layouts) {
    CAPTURE(name);
    check_close(serial, run_layout(layout, settings, make_model, make_batch), tolerance);
  }
}

}  // namespace

TEST_CASE(
    "ResNet gives the serial run's numbers in every layout, with exact sums to the bit, fp64") {
  for (const bool exact : {false, true}) {
    // The last batch norms see 2 x 2 pixels of 4 samples. Where sums differ, the last gammas start at 0, so that
    // rounding errors do not grow.
    const examples::ResNetConfig config{.depth = 14,
                                        .width = 8,
                                        .image_size = 16,
                                        .classes = 10,
                                        .zero_init_gamma = !exact,
                                        .label_smoothing = 0.1};
    check_models(
        exact ? 0 : 1e-9,
        {.deterministic = exact, .steps = exact ? 2 : 5, .micro_batches = 4, .lr = 0.01},
        [&](ModelBuilder<Cpu>& build) { return examples::resnet(build, config); },
        [&](Cpu& dev, int, std::int64_t k) {
          return pictures(dev, config.image_size, config.classes, k);
        });
  }
}

TEST_CASE("BERT gives the serial run's bits on 3 and 8 tensor ranks of 24 groups, fp32") {
  const examples::BertConfig config{.layers = 1,
                                    .hidden = 48,
                                    .heads = 24,
                                    .vocabulary = 61,
                                    .positions = 20,
                                    .sequence_length = everything_length,
                                    .dropout = 0.1};
  const auto run = [&](const Layout& layout) {
    return run_layout(
        layout, {.compute = DType::f32, .deterministic = true, .groups = 24, .steps = 2},
        [&](ModelBuilder<Cpu>& build) { return examples::bert(build, config); },
        [&](Cpu& dev, int, std::int64_t k) {
          return everything_batch(dev, 0, k, config.vocabulary);
        });
  };
  const auto serial = run({});
  for (const int tensor : {3, 8}) check_same_bits(serial, run({{.tensor = tensor}}));
}
