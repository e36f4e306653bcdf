// Pre-trains a BERT: masked tokens and next sentences, on any text, in any layout of ranks.
#include <dhp/comm/launch.hpp>
#include <dhp/default_device.hpp>

#include "../common/data.hpp"
#include "../common/training.hpp"
#include "model.hpp"

#include <cmath>
#include <iostream>

namespace {

using examples::BertConfig;
using Dev = dhp::DefaultDevice;

void train(const examples::BertOptions& options) {
  auto config = examples::bert_preset(options.preset);
  config.sequence_length = options.sequence_length;
  config.dropout = options.dropout;
  config.recompute = options.run.recompute;
  const auto data = examples::load_text(options);
  config.vocabulary = data.vocabulary;
  std::cerr << "text " << data.description << ", vocabulary " << data.vocabulary << "\n";

  const auto measures = [&](const std::vector<dhp::LossTerm>& terms) {
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
  dhp::run_ranks(options.run.mesh.size(),
                 [&](dhp::Comm<Dev> world) {
                   Dev dev({.threads = options.run.threads});
                   examples::TrainingRun run(
                       dev, std::move(world), options.run, data.train, data.held_out,
                       [&](dhp::Build<Dev>& build) { return examples::bert(build, config); },
                       measures);
                   run.run();
                 },
                 {.timeout_s = options.run.comm_timeout});
}

}  // namespace

int main(int argc, char** argv) {
  const auto parsed = examples::parse_bert(argc, argv);
  if (parsed.exit_status) return *parsed.exit_status;
  try {
    train(parsed.options);
  } catch (const dhp::Error& error) {
    std::cerr << "error: " << error.sentence() << "\n";
    return 1;
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 1;
  }
  return 0;
}
