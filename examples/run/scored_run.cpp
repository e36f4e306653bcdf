#include "scored_run.hpp"

#include <dhp/train/run_files.hpp>

#include "../report/progress.hpp"
#include "ranks.hpp"

#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <utility>
#include <vector>

namespace examples {
namespace {

using Dev = dhp::DefaultDevice;

/// Writes the rows of a pass on rank 0. next: the first sample of the pass; it advances.
void write_rows(const std::vector<dhp::HostArray>& arrays, const Scoring& scoring,
                std::int64_t micro_batch, std::size_t& next, RowFile& file) {
  for (auto array : arrays) {
    if (scoring.normalize) dhp::normalize_rows(array);
    std::vector<std::int64_t> numbers;
    const auto end = std::min(scoring.rows_of.size(), next + static_cast<std::size_t>(micro_batch));
    for (; next < end; ++next)
      numbers.insert(
          numbers.end(), static_cast<std::size_t>(scoring.rows_of[next]),
          scoring.numbers.empty() ? static_cast<std::int64_t>(next) + 1 : scoring.numbers[next]);
    file.add(array, numbers);
  }
}

/// Loads the model on one rank, then calls body.
void score(Dev& dev, dhp::Comm<Dev> world, const ScoreOptions& options, const LoadedModel& model,
           const std::function<void(ScoredRun&)>& body) {
  const bool speaks = world.rank() == 0;
  const auto& run_options = options.run;
  dhp::Loader loader(dev, model.samples,
                     dhp::evaluation_pass({.global_batch = run_options.global_batch,
                                           .micro_batch = run_options.micro_batch}));
  dhp::TrainingRun<Dev> run(
      dev, observed(dev, std::move(world), run_options),
      {.layout = run_options.mesh,
       .store = {.compute = run_options.precision, .initialize = false},
       .optimizer = dhp::SgdOptions{}},  // SGD needs no state
      [&](dhp::ModelBuilder<Dev>& build) {
        build.adapt(model.adapters);
        return model.describe(build);
      },
      loader);
  const auto loaded = run.files().load(
      run_options.load, {.only = true, .all = true, .adapter = run_options.tuning.adapter});
  ScoredRun scored{run, loader, [speaks](const std::string& line) {
                     if (speaks) std::cerr << line << "\n";
                   }};
  for (const auto& remark : loaded.remarks)
    scored.say((run_options.begins_anew() ? "" : "warning: ") + remark);
  scored.say(dhp::concat("loaded ", loaded.from, "; ", model.description, "; layout ",
                         to_text(run.mesh()), ", ", precision_name(run_options.precision)));
  loader.start_at({});
  body(scored);
}

}  // namespace

void start_scoring(const ScoreOptions& options, const Scoring& scoring,
                   const dhp::TrainingRun<Dev>::Describe& describe) {
  start_loaded(options, {describe, scoring.adapters, scoring.samples, scoring.description},
               [&](ScoredRun& scored) {
                 auto& run = scored.run;
                 auto& loader = scored.loader;
                 const bool writes = run.mesh().world().rank() == 0;
                 std::unique_ptr<RowFile> file;
                 if (writes) file = std::make_unique<RowFile>(scoring.output);
                 const auto began = std::chrono::steady_clock::now();
                 for (std::size_t next = 0; !loader.finished();) {
                   const auto arrays = run.predict(loader.next());
                   if (writes) write_rows(arrays, scoring, options.run.micro_batch, next, *file);
                 }
                 if (writes) file->finish();
                 const std::chrono::duration<double> took =
                     std::chrono::steady_clock::now() - began;
                 const auto samples = static_cast<double>(scoring.rows_of.size());
                 scored.say(dhp::concat(
                     scoring.output.rows, " rows of ", scoring.output.columns.size(), " in ",
                     short_number(took.count()), " s (", short_number(samples / took.count()), " ",
                     scoring.what, "/s)", options.output.empty() ? "" : ": " + options.output));
               });
}

void start_loaded(const ScoreOptions& options, const LoadedModel& model,
                  const std::function<void(ScoredRun&)>& body) {
  start_ranks(options.run, [&](Dev& dev, dhp::Comm<Dev> world, dhp::Deadlines*) {
    score(dev, std::move(world), options, model, body);
  });
}

}  // namespace examples
