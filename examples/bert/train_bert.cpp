// Pre-trains a BERT on masked tokens and next sentences, with any text, or fine-tunes it to classify sentences
// (--task classify), in any layout of ranks.
#include "../data/data.hpp"
#include "../report/class_measures.hpp"
#include "../run/training.hpp"
#include "encoder.hpp"

#include <cmath>
#include <span>

namespace {

using namespace examples;

/// Returns the setup of a BERT with a head of this kind. Keeps references.
TrainingSetup setup_for(const BertOptions& options, ConnectedRank* met, const TrainerData& data,
                        const PublishedBert& bert, BertHead head) {
  const auto& config = bert.config;
  auto setup =
      setup_of(options.run, met, data, config, [&bert, head](auto& build, const auto& planned) {
        auto described = bert;
        described.config = planned;
        return bert_with(build, described, head);
      });
  setup.forward_flop = [&bert, head](const dhp::MicroBatch<Dev>& batch) {
    const auto count = [&](const char* name) { return static_cast<double>(batch.count_of(name)); };
    BertWork work{.tokens = count("tokens"),
                  .token_pairs = count("token_pairs"),
                  .samples = count("samples")};
    if (head == BertHead::classes) work.classes = static_cast<double>(bert.labels.size());
    else work.masked = count("masked_tokens");
    return bert_forward_flop(bert.config, work);
  };
  setup.shortfalls = attention_shortfalls_of(config, config.heads, false);
  return setup;
}

int classify(const BertOptions& options, ConnectedRank* met) {
  const auto data = load_labeled_text(options);
  auto setup = setup_for(options, met, data, data.bert, BertHead::classes);
  setup.predicted_measures = [&](const std::vector<dhp::HostArray>& logits) {
    ClassCounts counts(data.bert.labels.size());
    std::span labels = data.labels;
    for (const auto& batch : logits) {
      const auto samples = static_cast<std::size_t>(batch.shape()[0]);
      counts.add(batch, labels.first(samples));
      labels = labels.subspan(samples);
    }
    return counts.measures();
  };
  setup.head = "classifier.";
  return run_training(setup);
}

int pretrain(const BertOptions& options, ConnectedRank* met) {
  // On a GPU the shapes stay fixed, so that steps can be recorded.
  const auto data = load_text(options, on_gpu);
  auto setup = setup_for(options, met, data, data.bert, BertHead::masked_words);
  setup.measures = [&](const std::vector<dhp::LossTerm>& terms) {
    const auto& masked = terms[0];
    const auto& next = terms[1];
    return Measures{{"masked_loss", masked.mean()},
                    {"unigram_loss", data.unigram_cross_entropy},
                    {"perplexity", std::exp(masked.mean())},
                    {"masked_accuracy", share(masked.correct, masked.count)},
                    {"next_sentence_loss", next.mean()},
                    {"next_sentence_accuracy", share(next.correct, next.count)}};
  };
  setup.head = "cls.";
  setup.same_shapes = data.same_shapes;
  return run_training(setup);
}

}  // namespace

int main(int argc, char** argv) {
  return run_trainer([&] { return parse_bert(argc, argv, on_gpu); },
                     [](const auto& options, auto* met) {
                       return options.task == "classify" ? classify(options, met)
                                                         : pretrain(options, met);
                     });
}
