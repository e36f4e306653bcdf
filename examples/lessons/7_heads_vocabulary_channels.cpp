// Lesson 7: H with dhp's layers. The pair of lesson 6 splits the outputs of its first layer and the inputs of its
// second. It fits whenever the operation between the two treats columns separately: a *head* of attention, a *channel*
// of a convolution. The words of a *vocabulary* are the inputs of a model's first layer and the outputs of its last. A
// table of placements says how each parameter is split; the layers follow it, and every pair needs the same two sums.
#include "lesson.hpp"

using dhp::Placement, dhp::Shape, dhp::Tensor;
using toy::Dev;
constexpr int ranks = 2;
constexpr std::int64_t tokens = 10, columns = 8, words = 20;

struct Example {
  const char* name;
  dhp::Model<Dev> (*describe)(dhp::ModelBuilder<Dev>&);
  Shape x;                         // shape of x and of the two sums, forward and backward
  std::int64_t columns_of_y;       // columns of y on one rank
  std::int64_t split, replicated;  // numbers of split and replicated weights
};

struct Seen {
  std::vector<float> result{};  // y and dx
  std::int64_t held_bytes = 0;  // bytes of weights
  std::vector<dhp::ParameterSpec> specs{};
  std::int64_t summed_bytes = 0;
};

/// Returns two samples of five tokens, and where they begin and end.
dhp::MicroBatch<Dev> batch_of_tokens(Dev& dev) {
  dhp::MicroBatch<Dev> batch;
  batch.samples = 2;
  std::vector<std::int32_t> ids{0, 7, 14, 1, 8, 15, 2, 9, 16, 3};
  std::vector<std::int64_t> rows{0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  batch.side.emplace_back("ids", Tensor<Dev>::from_host(dev, {tokens}, ids));
  batch.side.emplace_back("row_numbers", Tensor<Dev>::from_host(dev, {tokens}, rows));
  batch.side.emplace_back("offsets",
                          Tensor<Dev>::from_host(dev, {3}, std::vector<std::int32_t>{0, 5, 10}));
  batch.side.emplace_back("lengths",
                          Tensor<Dev>::from_host(dev, {2}, std::vector<std::int32_t>{5, 5}));
  return batch;
}

/// Runs forward, and backward from dy = y.
Seen run(dhp::Comm<Dev> plain_world, const Example& example) {
  auto [dev, counts, world] = toy::CountedRank(plain_world);
  dhp::ModelBuilder<Dev> build(world);
  auto model = example.describe(build);
  build.check_described();
  dhp::ParameterList<Dev> parameters;
  for (auto& layer : model.layers) layer.parameters(parameters);
  dhp::ParameterStore<Dev> store(dev, parameters, {.seed = 3});
  store.zero_gradients(dev);

  const auto batch = batch_of_tokens(dev);
  dhp::Tape<Dev> tape({}, &batch);
  auto x = toy::noise(dev, example.x, 0);  // an embedding ignores x and reads the batch's ids
  for (auto& layer : model.layers) x = layer.forward(dev, std::move(x), tape);
  // A rank has the logits of its own words; they are gathered only for the comparison.
  const bool part = x.columns() < example.columns_of_y;
  Seen seen;
  seen.result = (part ? gather_parts(dev, world, x, words) : x.share()).to_host<float>(dev);
  for (auto at = model.layers.size(); at-- > 0;)
    x = model.layers[at].backward(dev, std::move(x), tape);
  if (x)  // ids have no gradient
    for (const float value : x.to_host<float>(dev)) seen.result.push_back(value);
  for (const auto& parameter : parameters) {
    seen.held_bytes += 4 * parameter->value.count();
    seen.specs.push_back(parameter->spec);
  }
  seen.summed_bytes = counts->of(toy::all_ranks(ranks), dhp::CallKind::all_reduce).bytes;
  return seen;
}

dhp::Model<Dev> attention(dhp::ModelBuilder<Dev>& build) {
  build.place({{"heads.*", Placement::heads},
               {"output.weight", Placement::rows},
               {"output.bias", Placement::replicated}});
  const dhp::SelfAttentionOptions options{.heads = 4, .columns = columns, .max_length = 5};
  dhp::Model<Dev> model;
  model.add("heads", dhp::SelfAttention<Dev>(build, "heads", options));
  model.add("output", dhp::Linear<Dev>(build, "output", {.in = columns, .out = columns}));
  return model;
}
dhp::Model<Dev> convolution(dhp::ModelBuilder<Dev>& build) {
  build.place({{"3x3.weight", Placement::columns}, {"1x1.weight", Placement::rows}});
  const dhp::Conv2dOptions first{.in = 4, .out = 6, .kernel = 3, .padding = 1};
  dhp::Model<Dev> model;
  model.add("3x3", dhp::Conv2d<Dev>(build, "3x3", first));
  model.add("relu", dhp::relu<Dev>());
  model.add("1x1", dhp::Conv2d<Dev>(build, "1x1", {.in = 6, .out = 4}));
  return model;
}
dhp::Model<Dev> vocabulary(dhp::ModelBuilder<Dev>& build) {
  build.place({{"*", Placement::words}});
  const dhp::EmbeddingOptions table{.entries = words, .columns = columns, .ids = "ids"};
  const dhp::LinearOptions to_words{.in = columns, .out = words, .bias = false};
  dhp::Model<Dev> model;
  model.add("embedding", dhp::Embedding<Dev>(build, "embedding", table));
  model.add("logits", dhp::Linear<Dev>(build, "logits", to_words));
  return model;
}

/// Prints the ranks' part of each parameter.
void print(const std::vector<dhp::ParameterSpec>& specs) {
  for (const auto& spec : specs)
    std::printf("  %-18s %-10s  %s of %s\n", spec.name.c_str(), to_text(spec.placement).c_str(),
                to_text(spec.local_shape()).c_str(), to_text(spec.shape).c_str());
}

int main() {
  // Each rank has the whole bias of a row-parallel layer.
  const Example examples[] = {
      {"attention, 4 heads", attention, {tokens, columns}, columns, 4 * 8 * 8 + 3 * 8, 8},
      {"convolution, 6 channels", convolution, {2, 5, 5, 4}, 4, 6 * 3 * 3 * 4 + 4 * 6, 0},
      {"vocabulary of 20 words", vocabulary, {tokens, columns}, words, 2 * words * columns, 0}};
  bool correct = true;
  toy::Ledger ledger;
  for (const auto& example : examples) {
    const auto two = toy::on_each_rank(ranks, run, example);
    const auto one = toy::on_each_rank(1, run, example)[0];
    const bool same =
        toy::all_close(two[0].result, one.result) && toy::all_close(two[1].result, one.result);
    std::printf("%s: %s\n", example.name, same ? "the numbers of one rank" : "other numbers");
    print(two[0].specs);
    ledger.line("  weights, held: 1 / n of what is split", two[0].held_bytes,
                4 * (example.split / ranks + example.replicated));
    ledger.line("  summed, once forward and once backward", two[0].summed_bytes,
                4 * 2 * example.x.count());
    correct = correct && same;
  }
  return toy::status(correct && ledger.agrees());
}
