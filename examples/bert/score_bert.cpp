// Embeds sentences, or computes logits, with a BERT that was published or that train_bert has saved, in any layout of
// ranks.
#include <dhp/default_device.hpp>

#include "../report/progress.hpp"
#include "../run/scored_run.hpp"
#include "encoder.hpp"

int main(int argc, char** argv) {
  using Dev = dhp::DefaultDevice;
  const auto parsed = examples::parse_score_bert(argc, argv, !Dev::host_accessible);
  if (parsed.exit_status) return *parsed.exit_status;
  return examples::exit_status_of([&] {
    const auto prepared = examples::prepare_sentences(parsed.options);
    examples::start_scoring(parsed.options, prepared, [&](dhp::ModelBuilder<Dev>& build) {
      return examples::bert_with(build, prepared.bert, prepared.head);
    });
    return 0;
  });
}
