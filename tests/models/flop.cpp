// FLOP of a training step: the models' formulas against the operations that Meta counts in one step.
#include <dhp/train/memory_plan.hpp>
#include <examples/bert/model.hpp>
#include <examples/plan/model_work.hpp>
#include <examples/resnet50/model.hpp>
#include <tests/support/everything.hpp>
#include <tests/support/gradients.hpp>

namespace {

/// Counts one step of `micro_batches` on the rank of each stage and replica; returns the sum.
template <class Describe, class MakeBatch>
double counted(MeshShape layout, Describe describe, MakeBatch batch, std::int64_t micro_batches) {
  double flop = 0;
  for (int rank = 0; rank < layout.size(); ++rank) {
    Meta dev;
    TrainingRun<Meta> run(dev, Comm<Meta>::of(MetaComm<Meta>::world(layout, rank)),
                          {.layout = layout}, describe, batch(dev, std::int64_t{0}));
    StepBatches<Meta> mine;
    mine.micro_batches = micro_batches;
    mine.same_shapes = true;
    const auto share = part_of(micro_batches, layout.data, run.mesh().data_index());
    for (auto k = share.first; k < share.last; ++k) mine.batches.push_back(batch(dev, k));
    (void)run.trainer().start(mine);
    flop += dev.flop();
  }
  return flop;
}
const MeshShape layouts[] = {{}, {.data = 2}, {.data = 3}, {.pipeline = 2}, {2, 1, 2}};

}  // namespace

TEST_CASE("FLOP of BERT: is three times the forward formula in any layout") {
  for (const auto* preset : {"tiny", "base"}) {
    auto config = examples::bert_preset(preset);
    config.vocabulary = 611;
    const auto batch = [&](Meta& dev, std::int64_t k) {
      return everything_batch(dev, 0, k, config.vocabulary);
    };
    examples::BertWork work;
    for (std::int64_t k = 0; k < 4; ++k) {
      Meta dev;
      const auto one = batch(dev, k);
      work.tokens += static_cast<double>(one.at("token_ids").count());
      work.masked += static_cast<double>(one.at("masked_rows").count());
      work.samples += static_cast<double>(one.samples);
      for (const auto length : one.at("lengths").to_host<std::int32_t>(dev))
        work.token_pairs += static_cast<double>(length) * length;
    }
    const double flop = 3 * examples::bert_forward_flop(config, work);
    for (const auto& layout : layouts) {
      CAPTURE(layout.size());
      CHECK(counted(
                layout, [&](ModelBuilder<Meta>& build) { return examples::bert(build, config); },
                batch, 4) == flop);
    }
  }
}

TEST_CASE("model work: split layers compute half, and send their sums") {
  const auto work = [](int ranks) {
    return examples::count_work(PlannedRun<>{
        .options = {.layout = {.tensor = ranks}},
        .describe = [](auto& build) { return everything<Meta>(build); },
        .batch = [](Meta& dev, std::int64_t k) { return everything_batch(dev, 0, k, 64); }});
  };
  const auto sent = [](const examples::ModelWork& of) {
    double bytes = 0;
    for (const auto& layer : of.layers) bytes += layer.forward.sent_bytes;
    return bytes;
  };
  const auto whole = work(1), split = work(2);
  CHECK(whole.forward_flop() / 2 <= split.forward_flop());
  CHECK(split.forward_flop() < whole.forward_flop() * 0.6);
  CHECK(sent(whole) == 0);
  CHECK(sent(split) >
        static_cast<double>(whole.layers.size()) / 2 * whole.layers.front().output_bytes);
}

TEST_CASE("FLOP of causal attention with shared keys: only computed pairs count") {
  Meta dev;
  ModelBuilder<Meta> build(Comm<Meta>{});
  SelfAttention<Meta> layer(build, "s",
                            {.heads = 4,
                             .columns = 16,
                             .max_length = 8,
                             .key_heads = 2,
                             .causal = true,
                             .rotary_base = 100});
  ParameterList<Meta> parameters;
  layer.parameters(parameters);
  const ParameterStore<Meta> store(dev, parameters, {});
  const auto batch = tests::token_batch(dev, 3, 8, 11);  // 8, 7 and 8 tokens
  Tape<Meta> tape({}, &batch);
  const Shape shape{24, 16};
  auto y = layer.forward(dev, Tensor<Meta>(dev, DType::f32, shape), tape);
  const double projections = 2 * 24 * 16 * (16 + 8 + 8), pairs = 36 + 28 + 36;
  CHECK(dev.flop() == projections + 4 * pairs * 16);
  CHECK(layer.flops(shape, batch) == projections + 4 * 3 * 36 * 16);
  (void)layer.backward(dev, std::move(y), tape);
  CHECK(dev.flop() == 3 * (projections + 4 * pairs * 16));
  CHECK(dev.count().dropout_flop == 0);
}

TEST_CASE("FLOP of attention with dropout: those of dropout are counted separately") {
  Meta dev;
  ModelBuilder<Meta> build(Comm<Meta>{});
  SelfAttention<Meta> layer(build, "s",
                            {.heads = 4, .columns = 16, .max_length = 8, .dropout = 0.1});
  ParameterList<Meta> parameters;
  layer.parameters(parameters);
  const ParameterStore<Meta> store(dev, parameters, {});
  const auto batch = tests::token_batch(dev, 3, 8, 11);  // 8, 7 and 8 tokens
  for (const bool trains : {false, true}) {
    Tape<Meta> tape({.mode = trains ? StepContext::Mode::train : StepContext::Mode::eval}, &batch);
    auto y = layer.forward(dev, Tensor<Meta>(dev, DType::f32, {24, 16}), tape);
    if (trains) (void)layer.backward(dev, std::move(y), tape);
    CHECK(dev.count().dropout_flop == (trains ? 12 * (64 + 49 + 64) * 16 : 0));
  }
}

TEST_CASE("FLOP of ResNet: is three times the forward pass, minus the images' gradient") {
  for (const auto& config :
       {examples::ResNetConfig{}, examples::ResNetConfig{.depth = 14, .width = 8, .image_size = 33},
        examples::ResNetConfig{.depth = 26, .image_size = 32, .stem_stride = 2},
        examples::ResNetConfig{.depth = 152, .image_size = 225}}) {
    const auto batch = [&](Meta& dev, std::int64_t k) {
      MicroBatch<Meta> result;
      result.index = k;
      result.first_sample = 2 * k;
      result.samples = 2;
      result.input = Tensor<Meta>(dev, DType::f32, {2, config.image_size, config.image_size, 3});
      result.side.emplace_back("labels", Tensor<Meta>::zeros(dev, DType::i32, {2}));
      result.counts = {{"samples", 2}};
      return result;
    };
    const auto kernel = config.small_images() ? 3 : 7,
               stride = config.small_images() ? config.stem_stride : 2;
    const auto side = (config.image_size + kernel / 2 * 2 - kernel) / stride + 1;
    const double stem = 2.0 * static_cast<double>(side * side * kernel * kernel * 3 * config.width);
    const double flop = 8 * (3 * examples::resnet_forward_flop(config) - stem);
    for (const auto& layout : layouts) {
      CAPTURE(config.depth);
      CHECK(counted(
                layout, [&](ModelBuilder<Meta>& build) { return examples::resnet(build, config); },
                batch, 4) == flop);
    }
  }
  // torchvision gives 4.09 billion multiply-adds for its resnet50.
  CHECK(examples::resnet_forward_flop({}) == Approx(2 * 4.09e9).epsilon(0.005));
}
