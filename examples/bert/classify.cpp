// Fine-tunes a BERT to classify sentences: train_bert --task classify.
#include "classify.hpp"

#include "../report/class_measures.hpp"
#include "../run/training.hpp"
#include "encoder.hpp"

#include <span>

namespace examples {

int classify(const BertOptions& options, ConnectedRank* met) {
  const auto data = load_labeled_text(options);
  const auto& bert = data.bert;
  auto setup = setup_of(options.run, met, data, bert.config, [&](auto& build, const auto& config) {
    auto planned = bert;
    planned.config = config;
    return bert_with(build, planned, BertHead::classes);
  });
  setup.predicted_measures = [&](const std::vector<dhp::HostArray>& logits) {
    ClassCounts counts(bert.labels.size());
    std::span labels = data.labels;
    for (const auto& batch : logits) {
      const auto samples = static_cast<std::size_t>(batch.shape()[0]);
      counts.add(batch, labels.first(samples));
      labels = labels.subspan(samples);
    }
    return counts.measures();
  };
  setup.forward_flop = [&](const dhp::MicroBatch<Dev>& batch) {
    const auto count = [&](const char* name) { return static_cast<double>(batch.count_of(name)); };
    return bert_forward_flop(bert.config, {.tokens = count("tokens"),
                                           .token_pairs = count("token_pairs"),
                                           .samples = count("samples"),
                                           .classes = static_cast<double>(bert.labels.size())});
  };
  setup.head = "classifier.";
  setup.shortfalls = attention_shortfalls_of(bert.config, bert.config.heads, false);
  return run_training(setup);
}

}  // namespace examples
