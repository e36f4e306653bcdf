// How well a causal decoder predicts a text, or what it goes on with after a prompt, in any layout of ranks. The model
// is a published one, or one of train_gpt.
#include <dhp/comm/gather.hpp>
#include <dhp/data/sample_random.hpp>
#include <dhp/default_device.hpp>

#include "../report/progress.hpp"
#include "../run/scored_run.hpp"
#include "document_samples.hpp"
#include "model.hpp"
#include "sampling.hpp"

#include <cmath>
#include <iostream>
#include <numeric>

namespace {

using Dev = dhp::DefaultDevice;
using Tokens = std::vector<std::int32_t>;

void print(const std::string& text) {
  dhp::check(static_cast<bool>(std::cout << text << std::flush), "cannot write to standard output");
}

/// One line of JSON.
void score(examples::ScoredRun& scored, const examples::GptScoring& of) {
  const auto term = scored.run.evaluate(scored.loader).terms[0];
  if (scored.run.mesh().world().rank() != 0) return;
  dhp::check(std::isfinite(term.mean()), "the loss of this text is not finite (", term.mean(),
             "); are weights of the model, or is --precision too small for them?");
  const auto perplexity = std::exp(term.mean());
  print(dhp::concat(
      "{\"tokens\": ", term.count, ", \"loss\": ", term.mean(),
      ", \"perplexity\": ", std::isfinite(perplexity) ? dhp::concat(perplexity) : "null",
      ", \"accuracy\": ", static_cast<double>(term.correct) / static_cast<double>(term.count),
      ", \"bits_per_byte\": ", term.sum / std::log(2.0) / static_cast<double>(of.bytes), "}\n"));
}

/// Each prompt is a micro-batch, so replicas share them. All that a token sees is computed anew for the next one.
void generate(examples::ScoredRun& scored, const examples::GptScoring& of,
              const examples::ScoreOptions& options) {
  auto& run = scored.run;
  auto& dev = run.device();
  auto& world = run.mesh().world();
  const auto seen = static_cast<std::size_t>(of.config.sequence_length);
  auto texts = of.prompts;
  std::vector<std::size_t> open(texts.size());  // those that have not ended
  std::iota(open.begin(), open.end(), 0);
  for (std::int64_t step = 0; step < options.tokens && !open.empty(); ++step) {
    std::vector<dhp::MicroBatch<Dev>> batches;
    for (const auto number : open) {
      const std::span text(texts[number]);
      examples::SequenceRows rows;
      for (const auto token : text.last(std::min(text.size(), seen))) rows.add(token, -1, 0);
      const auto index = static_cast<std::int64_t>(batches.size());
      batches.push_back(
          dhp::upload(dev, rows.finish(of.config.sequence_length), index, {index, index + 1}));
    }
    const auto scores = run.predict(batches);
    std::vector<double> tokens(open.size(), 0);
    for (std::size_t at = 0; at < scores.size(); ++at) {
      std::vector<double> values;
      if (scores[at].dtype() == dhp::DType::f64) {
        const auto all = scores[at].values<double>();
        values.assign(all.begin(), all.end());
      } else {
        const auto all = scores[at].values<float>();
        values.assign(all.begin(), all.end());
      }
      dhp::SampleRandom random(options.run.seed, step, static_cast<std::int64_t>(open[at]),
                               dhp::DataUse::user);
      tokens[at] = examples::chosen_token(
          values, {options.temperature, options.top_k, options.top_p}, random.uniform());
    }
    tokens = dhp::gather(dev, world, tokens);  // those of rank 0 come first
    std::vector<std::size_t> still_open;
    for (std::size_t at = 0; at < open.size(); ++at) {
      const auto token = static_cast<std::int32_t>(tokens[at]);
      if (of.config.ends(token)) continue;
      texts[open[at]].push_back(token);
      still_open.push_back(open[at]);
    }
    open = std::move(still_open);
  }
  if (world.rank() != 0) return;
  for (std::size_t number = 0; number < texts.size(); ++number) {
    const auto& text = texts[number];
    const auto prompt = static_cast<std::ptrdiff_t>(of.prompts[number].size());
    print(options.prompts[number] + of.decode(Tokens(text.begin() + prompt, text.end())) + "\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const auto parsed = examples::parse_score_gpt(argc, argv, !Dev::host_accessible);
  if (parsed.exit_status) return *parsed.exit_status;
  const auto& options = parsed.options;
  return examples::exit_status_of([&] {
    const auto prepared = examples::prepare_gpt(options);
    examples::start_loaded(
        options,
        {[&](dhp::ModelBuilder<Dev>& build) { return examples::gpt(build, prepared.config); },
         prepared.adapters, prepared.samples, prepared.description},
        [&](examples::ScoredRun& scored) {
          if (options.prompts.empty()) score(scored, prepared);
          else generate(scored, prepared, options);
        });
    return 0;
  });
}
