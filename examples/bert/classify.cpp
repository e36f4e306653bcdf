// Fine-tunes a BERT to tell classes of sentences apart: train_bert --task classify.
#include "classify.hpp"

#include "../report/class_measures.hpp"
#include "../run/training.hpp"
#include "encoder.hpp"

#include <iostream>
#include <span>

namespace examples {

int classify(const BertOptions& options, ConnectedRank* met) {
  const auto data = load_labelled_text(options);
  const auto& bert = data.bert;
  if (options.run.speaks()) {
    std::cerr << "text " << data.description << ", vocabulary " << bert.config.vocabulary << "\n";
    for (const auto& warning : data.warnings) std::cerr << "warning: " << warning << "\n";
  }
  return run_training(
      {.options = options.run,
       .met = met,
       .train = data.train,
       .held_out = data.held_out,
       .make_model =
           [&](dhp::ModelBuilder<Dev>& build) { return bert_with(build, bert, BertHead::classes); },
       .plan_model =
           [&](dhp::ModelBuilder<dhp::Meta>& build, bool recompute) {
             auto planned = bert;
             planned.config.recompute = recompute;
             return bert_with(build, planned, BertHead::classes);
           },
       .predicted_measures =
           [&](const std::vector<dhp::HostArray>& logits) {
             ClassCounts counts(bert.labels.size());
             std::span labels = data.labels;
             for (const auto& batch : logits) {
               const auto samples = static_cast<std::size_t>(batch.shape()[0]);
               counts.add(batch, labels.first(samples));
               labels = labels.subspan(samples);
             }
             return counts.measures();
           },
       .forward_flop =
           [&](const dhp::MicroBatch<Dev>& batch) {
             const auto count = [&](const char* name) {
               return static_cast<double>(batch.count_of(name));
             };
             return bert_forward_flop(bert.config,
                                      {.tokens = count("tokens"),
                                       .token_pairs = count("token_pairs"),
                                       .samples = count("samples"),
                                       .classes = static_cast<double>(bert.labels.size())});
           },
       .files = data.files,
       .head = "classifier.",
       .shortfalls =
           [&](Dev& dev) {
             return attention_shortfalls_of(dev, bert.config, options.run.precision,
                                            options.run.micro_batch, options.run.mesh.tensor);
           }});
}

}  // namespace examples
