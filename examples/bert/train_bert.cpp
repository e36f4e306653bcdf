// Pre-trains a BERT on masked tokens and next sentences, with any text, in any layout of ranks.
#include "../data/data.hpp"
#include "../run/training.hpp"
#include "classify.hpp"
#include "model.hpp"

#include <cmath>

namespace {

int train(const examples::BertOptions& options, examples::ConnectedRank* met) {
  // On a GPU the shapes stay fixed, so that steps can be recorded.
  const auto data = examples::load_text(options, examples::on_gpu);
  const auto& config = data.bert.config;
  auto setup = examples::setup_of(
      options.run, met, data, config,
      [](auto& build, const auto& planned) { return examples::bert(build, planned); });
  setup.measures = [&](const std::vector<dhp::LossTerm>& terms) {
    const auto& masked = terms[0];
    const auto& next = terms[1];
    return examples::Measures{
        {"masked_loss", masked.mean()},
        {"unigram_loss", data.unigram_cross_entropy},
        {"perplexity", std::exp(masked.mean())},
        {"masked_accuracy", examples::share(masked.correct, masked.count)},
        {"next_sentence_loss", next.mean()},
        {"next_sentence_accuracy", examples::share(next.correct, next.count)}};
  };
  setup.forward_flop = [&](const dhp::MicroBatch<examples::Dev>& batch) {
    const auto count = [&](const char* name) { return static_cast<double>(batch.count_of(name)); };
    return examples::bert_forward_flop(config, {.tokens = count("tokens"),
                                                .token_pairs = count("token_pairs"),
                                                .masked = count("masked_tokens"),
                                                .samples = count("samples")});
  };
  setup.head = "cls.";
  setup.same_shapes = data.same_shapes;
  setup.shortfalls = examples::attention_shortfalls_of(config, config.heads, false);
  return examples::run_training(setup);
}

}  // namespace

int main(int argc, char** argv) {
  auto parsed = examples::parse_bert(argc, argv, examples::on_gpu);
  const auto& options = parsed.options;
  return examples::run_trainer(parsed.options.run, parsed.exit_status, [&](auto* met) {
    return options.task == "classify" ? examples::classify(options, met) : train(options, met);
  });
}
