// Scores how well a causal decoder predicts a text, or continues prompts, in any layout of ranks. The model is a
// published one, or one of train_gpt.
#include <dhp/comm/gather.hpp>
#include <dhp/data/sample_random.hpp>
#include <dhp/default_device.hpp>

#include "../report/progress.hpp"
#include "../run/scored_run.hpp"
#include "document_samples.hpp"
#include "model.hpp"
#include "sampling.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <memory>
#include <numeric>

namespace {

using Dev = dhp::DefaultDevice;
using Tokens = std::vector<std::int32_t>;

/// Prints the loss of the text as one line of JSON.
void score(examples::ScoredRun& scored, const examples::GptScoring& of) {
  const auto term = scored.run.evaluate(scored.loader).value().terms[0];
  if (scored.run.mesh().world().rank() != 0) return;
  dhp::check(std::isfinite(term.mean()), "the loss of this text is not finite (", term.mean(),
             "); are all weights finite, and does --precision have their range?");
  const auto perplexity = std::exp(term.mean());
  std::cout << dhp::concat(
      "{\"tokens\": ", term.count, ", \"loss\": ", term.mean(),
      ", \"perplexity\": ", std::isfinite(perplexity) ? dhp::concat(perplexity) : "null",
      ", \"accuracy\": ", static_cast<double>(term.correct) / static_cast<double>(term.count),
      ", \"bits_per_byte\": ", term.sum / std::log(2.0) / static_cast<double>(of.bytes), "}\n");
}

[[nodiscard]] std::vector<double> doubles(const dhp::HostArray& scores) {
  const auto copy = [](const auto& all) { return std::vector<double>(all.begin(), all.end()); };
  return scores.dtype() == dhp::DType::f64 ? copy(scores.values<double>())
                                           : copy(scores.values<float>());
}

/// Prompts that form one micro-batch. The replica that computes it keeps the cache of keys and values.
struct PromptGroup {
  std::size_t first, last;
  std::shared_ptr<dhp::MicroBatch<Dev>::Cache> cache;
};

/// Returns the rows of the next step: with a cache, the last token of each text. In the first step, without a cache, or
/// when a text exceeds the context of `seen` tokens, they are each text's whole context.
[[nodiscard]] dhp::HostBatch next_rows(PromptGroup& group, const std::vector<Tokens>& texts,
                                       const examples::ScoreOptions& options, std::size_t seen) {
  std::size_t longest = 0;
  for (auto at = group.first; at < group.last; ++at) longest = std::max(longest, texts[at].size());
  const bool begins = group.cache == nullptr;
  if (!options.cache || longest > seen) {
    group.cache = nullptr;
  } else if (begins) {
    group.cache = std::make_shared<dhp::MicroBatch<Dev>::Cache>();
    group.cache->capacity = static_cast<std::int64_t>(
        std::min(seen, longest + static_cast<std::size_t>(options.tokens)));
  }
  examples::SequenceRows rows;
  for (auto at = group.first; at < group.last; ++at) {
    const std::span text(texts[at]);
    const auto count = begins || !group.cache ? std::min(text.size(), seen) : 1;
    rows.begin_part(group.cache ? text.size() - count : 0);
    for (const auto token : text.last(count)) rows.add(token, -1, 0);
  }
  return rows.finish(static_cast<std::int64_t>(seen));
}

/// Writes the scores of all words as each prompt's next token.
void write_scores(const std::vector<dhp::HostArray>& scores, const examples::GptScoring& of,
                  const examples::ScoreOptions& options) {
  examples::RowFileOptions file{.path = options.output,
                                .what = "scores",
                                .columns = {},
                                .rows = std::ssize(of.prompts),
                                .wide = options.run.store.compute == dhp::DType::f64};
  for (std::int64_t token = 0; token < of.config.vocabulary; ++token)
    file.columns.push_back(dhp::concat(token));
  examples::write_rows(file, [&](examples::RowFile& rows) {
    for (const auto& each : scores) {
      std::vector<std::int64_t> numbers(static_cast<std::size_t>(each.shape()[0]));
      std::iota(numbers.begin(), numbers.end(), rows.written() + 1);
      rows.add(each, numbers);
    }
  });
}

void generate(examples::ScoredRun& scored, const examples::GptScoring& of,
              const examples::ScoreOptions& options) {
  auto& run = scored.run;
  auto& dev = run.device();
  auto& mesh = run.mesh();
  auto texts = of.prompts;
  std::vector<bool> ended(texts.size());
  std::vector<PromptGroup> groups;
  for (std::size_t first = 0; first < texts.size(); first = groups.back().last)
    groups.push_back(
        {first, std::min(first + static_cast<std::size_t>(options.run.micro_batch), texts.size()),
         nullptr});
  const auto mine = dhp::part_of(std::ssize(groups), mesh.data().size(), mesh.data().rank());
  const auto began = std::chrono::steady_clock::now();
  std::int64_t generated = 0;
  for (std::int64_t step = 0; step < options.tokens; ++step) {
    dhp::StepBatches<Dev> batches;
    std::vector<std::size_t> asked;  // texts whose next token is predicted
    for (std::int64_t number = 0; number < std::ssize(groups); ++number) {
      auto& group = groups[static_cast<std::size_t>(number)];
      bool goes_on = false;
      for (auto at = group.first; at < group.last; ++at) goes_on = goes_on || !ended[at];
      if (!goes_on) {
        group.cache = {};
        continue;
      }
      for (auto at = group.first; at < group.last; ++at) asked.push_back(at);
      const auto index = batches.micro_batches++;
      if (number < mine.first || number >= mine.last) continue;
      batches.batches.push_back(dhp::upload(
          dev,
          next_rows(group, texts, options, static_cast<std::size_t>(of.config.sequence_length)),
          index, {static_cast<std::int64_t>(group.first), static_cast<std::int64_t>(group.last)}));
      batches.batches.back().cache = group.cache;
    }
    if (asked.empty()) break;
    std::vector<double> tokens;
    const auto predicted = run.predict(batches);
    if (step == 0 && mesh.world().rank() == 0 && !options.output.empty())
      write_scores(predicted, of, options);
    for (const auto& scores : predicted) {
      const auto all = doubles(scores);
      for (std::span<const double> rest(all); !rest.empty();) {
        const auto words = static_cast<std::size_t>(scores.shape().back());
        dhp::SampleRandom random(options.run.store.seed, step,
                                 static_cast<std::int64_t>(asked[tokens.size()]),
                                 dhp::DataUse::user);
        tokens.push_back(examples::chosen_token(rest.first(words),
                                                {options.temperature, options.top_k, options.top_p},
                                                random.uniform()));
        rest = rest.subspan(words);
      }
    }
    tokens.resize(asked.size());
    tokens = dhp::gather(dev, mesh.world(), tokens);  // rank 0's tokens come first, and are taken
    for (std::size_t at = 0; at < asked.size(); ++at) {
      const auto token = static_cast<std::int32_t>(tokens[at]);
      if (ended[asked[at]] || of.config.ends(token)) {
        ended[asked[at]] = true;
        continue;
      }
      texts[asked[at]].push_back(token);
      ++generated;
    }
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  scored.log(dhp::concat(
      dhp::detail::pluralize(generated, "token"), " in ", examples::short_number(took.count()),
      " s (", examples::short_number(static_cast<double>(generated) / took.count()), " tokens/s)"));
  if (mesh.world().rank() != 0) return;
  for (std::size_t number = 0; number < texts.size(); ++number) {
    const auto& text = texts[number];
    const auto prompt = static_cast<std::ptrdiff_t>(of.prompts[number].size());
    std::cout << options.prompts[number] << of.decode(Tokens(text.begin() + prompt, text.end()))
              << "\n";
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
        options, prepared,
        [&](dhp::ModelBuilder<Dev>& build) { return examples::gpt(build, prepared.config); },
        [&](examples::ScoredRun& scored) {
          if (options.prompts.empty()) score(scored, prepared);
          else generate(scored, prepared, options);
        });
    return 0;
  });
}
