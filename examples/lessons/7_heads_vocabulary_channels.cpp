// Lesson 7: H with dhp's layers. The pair of lesson 6, outputs of the first split and inputs of the second, fits the
// large layers of transformers and convolutional networks: between the two stands what treats its columns apart. That
// is a *head* of attention, a *channel* of a convolution. The words of a *vocabulary* are split, too, at both ends of
// the model. A table of placements says which parameter is split how; the layers follow it.
#include "lesson.hpp"

#include <cmath>

using dhp::DType, dhp::Placement, dhp::Tensor;
using toy::Dev;
constexpr int ranks = 2;
constexpr std::int64_t tokens = 10, columns = 8, words = 20;

struct Example {
  const char* name;
  void (*describe)(dhp::ModelBuilder<Dev>&, dhp::Model<Dev>&);
  dhp::Shape input;                // empty: the first layer reads the ids of words
  bool predicts{};                 // words, and has a loss
  std::int64_t split, replicated;  // weights
  std::int64_t summed_bytes;       // forward and backward
};

struct Seen {
  std::vector<float> result{};  // what comes out: y and dx, or the loss
  std::int64_t held_bytes = 0;  // of weights
  std::vector<dhp::ParameterSpec> specs{};
  dhp::CallCount all_reduces{};
};

/// Two samples of five tokens, and where they begin and end.
dhp::MicroBatch<Dev> batch_of_tokens(Dev& dev) {
  dhp::MicroBatch<Dev> batch;
  batch.samples = 2;
  std::vector<std::int32_t> ids{0, 7, 14, 1, 8, 15, 2, 9, 16, 3};
  std::vector<std::int64_t> rows{0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  batch.side.emplace_back("ids", Tensor<Dev>::from_host(dev, {tokens}, ids));
  batch.side.emplace_back("labels", Tensor<Dev>::from_host(dev, {tokens}, ids));
  batch.side.emplace_back("row_numbers", Tensor<Dev>::from_host(dev, {tokens}, rows));
  batch.side.emplace_back("offsets",
                          Tensor<Dev>::from_host(dev, {3}, std::vector<std::int32_t>{0, 5, 10}));
  batch.side.emplace_back("lengths",
                          Tensor<Dev>::from_host(dev, {2}, std::vector<std::int32_t>{5, 5}));
  return batch;
}

/// Forward, and backward from dy = y, or from the loss where the model has one.
Seen run(dhp::Comm<Dev> plain_world, const Example& example) {
  Dev dev;
  const auto counts = std::make_shared<dhp::CallCounts>();
  dhp::ModelBuilder<Dev> build(counted(dev, plain_world, counts));
  dhp::Model<Dev> model;
  example.describe(build, model);
  build.check_described();
  dhp::ParameterList<Dev> parameters;
  for (auto& layer : model.layers) layer.parameters(parameters);
  dhp::ParameterStore<Dev> store(dev, parameters, {.seed = 3});
  store.zero_gradients(dev);

  const auto batch = batch_of_tokens(dev);
  dhp::Tape<Dev> tape({}, &batch);
  Tensor<Dev> x;
  if (!example.predicts) {
    std::vector<float> values;
    for (std::int64_t at = 0; at < example.input.count(); ++at)
      values.push_back(static_cast<float>(std::sin(static_cast<double>(at))));
    x = Tensor<Dev>::from_host(dev, example.input, values);
  }
  for (auto& layer : model.layers) x = layer.forward(dev, std::move(x), tape);
  Seen seen;
  Tensor<Dev> dx;
  if (example.predicts) {
    Tensor<Dev> totals(dev, DType::f64, {1, dhp::loss_fields});
    model.loss.forward(dev, std::move(x), tape, totals.mut());
    seen.result = {static_cast<float>(totals.to_host<double>(dev)[0])};
    const auto one = Tensor<Dev>::from_host(dev, {1}, std::vector<double>{1});
    dx = model.loss.backward(dev, one.view(), tape);
  } else {
    seen.result = x.to_host<float>(dev);
    dx = std::move(x);
  }
  for (auto at = model.layers.size(); at-- > 0;)
    dx = model.layers[at].backward(dev, std::move(dx), tape);
  if (dx)
    for (const float value : dx.to_host<float>(dev)) seen.result.push_back(value);
  for (const auto& parameter : parameters) {
    seen.held_bytes += 4 * parameter->value.count();
    seen.specs.push_back(parameter->spec);
  }
  seen.all_reduces = counts->of(toy::everybody(ranks), dhp::CallKind::all_reduce);
  return seen;
}

void attention(dhp::ModelBuilder<Dev>& build, dhp::Model<Dev>& model) {
  build.place({{"heads.*", Placement::heads},
               {"output.weight", Placement::rows},
               {"output.bias", Placement::replicated}});
  const dhp::SelfAttentionOptions options{.heads = 4, .columns = columns, .max_length = 5};
  model.add("heads", dhp::SelfAttention<Dev>(build, "heads", options));
  model.add("output", dhp::Linear<Dev>(build, "output", {.in = columns, .out = columns}));
}
void convolution(dhp::ModelBuilder<Dev>& build, dhp::Model<Dev>& model) {
  build.place({{"3x3.weight", Placement::columns}, {"1x1.weight", Placement::rows}});
  const dhp::Conv2dOptions first{.in = 4, .out = 6, .kernel = 3, .padding = 1};
  model.add("3x3", dhp::Conv2d<Dev>(build, "3x3", first));
  model.add("relu", dhp::relu<Dev>());
  model.add("1x1", dhp::Conv2d<Dev>(build, "1x1", {.in = 6, .out = 4}));
}
void vocabulary(dhp::ModelBuilder<Dev>& build, dhp::Model<Dev>& model) {
  build.place({{"*", Placement::words}});
  const dhp::EmbeddingOptions table{.entries = words, .columns = columns, .ids = "ids"};
  const dhp::LinearOptions to_words{.in = columns, .out = words, .bias = false};
  model.add("embedding", dhp::Embedding<Dev>(build, "embedding", table));
  model.add("logits", dhp::Linear<Dev>(build, "logits", to_words));
  model.loss = dhp::ClassificationLoss<Dev>(
      dhp::CrossEntropy<Dev>(build, words, build.placement("logits.weight")));
}

/// Prints the ranks' part of each parameter.
void print(const std::vector<dhp::ParameterSpec>& specs) {
  for (const auto& spec : specs)
    std::printf("  %-18s %-10s  %s of %s\n", spec.name.c_str(), to_text(spec.placement).c_str(),
                to_text(spec.local_shape()).c_str(), to_text(spec.shape).c_str());
}

int main() {
  // The bias of a row-parallel layer is whole on every rank. The vocabulary's loss exchanges four numbers a token.
  const Example examples[] = {{"attention, 4 heads",
                               attention,
                               {tokens, columns},
                               false,
                               4 * columns * columns + 3 * columns,
                               columns,
                               4 * 2 * tokens * columns},
                              {"convolution, 6 channels",
                               convolution,
                               {2, 5, 5, 4},
                               false,
                               6 * 3 * 3 * 4 + 4 * 6,
                               0,
                               4 * 2 * (2 * 5 * 5 * 4)},
                              {"vocabulary of 20 words",
                               vocabulary,
                               {},
                               true,
                               2 * words * columns,
                               0,
                               4 * (2 * tokens * columns + 4 * tokens)}};
  bool right = true;
  toy::Ledger ledger;
  for (const auto& example : examples) {
    const auto two = toy::on_each_rank(ranks, run, example);
    const auto one = toy::on_each_rank(1, run, example)[0];
    const bool same =
        toy::alike(two[0].result, one.result) && toy::alike(two[1].result, one.result);
    std::printf("%s: %s\n", example.name, same ? "the numbers of one rank" : "other numbers");
    print(two[0].specs);
    ledger.line("  weights, held: 1 / n of what is split", two[0].held_bytes,
                4 * (example.split / ranks + example.replicated));
    ledger.line("  all-reduced, forward and backward", two[0].all_reduces.bytes,
                example.summed_bytes);
    right = right && same;
  }
  return right && ledger.agrees() ? 0 : 1;
}
