// Trains a causal decoder to predict the next token, on any text, in any layout of ranks.
#include "../data/data.hpp"
#include "../run/training.hpp"
#include "model.hpp"

#include <cmath>

namespace {

int train(const examples::TextModelOptions& options, examples::ConnectedRank* met) {
  const auto data = examples::load_gpt_text(options);
  const auto& config = data.config;
  auto setup = examples::setup_of(
      options.run, met, data, config,
      [](auto& build, const auto& planned) { return examples::gpt(build, planned); });
  setup.measures = [](const std::vector<dhp::LossTerm>& terms) {
    const auto& tokens = terms[0];
    return examples::Measures{{"loss", tokens.mean()},
                              {"perplexity", std::exp(tokens.mean())},
                              {"accuracy", examples::share(tokens.correct, tokens.count)}};
  };
  setup.forward_flop = [&](const dhp::MicroBatch<examples::Dev>& batch) {
    return examples::gpt_forward_flop(config, static_cast<double>(batch.count_of("tokens")),
                                      static_cast<double>(batch.count_of("token_pairs")));
  };
  setup.shortfalls = examples::attention_shortfalls_of(config, config.heads_of_keys(), true);
  return examples::run_training(setup);
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_trainer([&] { return examples::parse_gpt(argc, argv, examples::on_gpu); },
                               train);
}
