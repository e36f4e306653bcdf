#include "scored_run.hpp"

#include <dhp/data/loader.hpp>
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

/// Writes what a pass gives on rank 0. next: the first sample of the pass, which moves on.
void write_rows(const std::vector<dhp::HostArray>& arrays, const Scoring& scoring,
                std::int64_t micro_batch, std::size_t& next, RowFile& file) {
  for (auto array : arrays) {
    if (scoring.normalise) dhp::normalise_rows(array);
    std::vector<std::int64_t> numbers;
    const auto end = std::min(scoring.rows_of.size(), next + static_cast<std::size_t>(micro_batch));
    for (; next < end; ++next)
      numbers.insert(numbers.end(), static_cast<std::size_t>(scoring.rows_of[next]),
                     static_cast<std::int64_t>(next) + 1);
    file.add(array, numbers);
  }
}

/// One rank's part.
void score(Dev& dev, dhp::Comm<Dev> world, const ScoreOptions& options, const Scoring& scoring,
           const dhp::TrainingRun<Dev>::Describe& describe) {
  const bool speaks = world.rank() == 0;
  const auto say = [&](const auto&... parts) {
    if (speaks) std::cerr << dhp::concat(parts...) << "\n";
  };
  const auto& run_options = options.run;
  dhp::Loader loader(dev, scoring.samples,
                     dhp::evaluation_pass({.global_batch = run_options.global_batch,
                                           .micro_batch = run_options.micro_batch}));
  dhp::TrainingRun<Dev> run(
      dev, observed(dev, std::move(world), run_options),
      {.layout = run_options.mesh,
       .store = {.compute = run_options.precision, .initialize = false},
       .optimizer = dhp::SgdOptions{}},  // it has no state
      [&](dhp::ModelBuilder<Dev>& build) {
        build.adapt(scoring.adapters);
        return describe(build);
      },
      loader);
  const auto loaded = run.files().load(
      run_options.load, {.only = true, .all = true, .adapter = run_options.tuning.adapter});
  say("loaded ", loaded.from, "; ", scoring.description, "; layout ", to_text(run.mesh()), ", ",
      precision_name(run_options.precision));
  loader.start_at({});
  std::unique_ptr<RowFile> file;
  if (speaks) file = std::make_unique<RowFile>(scoring.output);
  const auto began = std::chrono::steady_clock::now();
  for (std::size_t next = 0; !loader.finished();) {
    const auto arrays = run.predict(loader.next());
    if (speaks) write_rows(arrays, scoring, run_options.micro_batch, next, *file);
  }
  if (speaks) file->finish();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  const auto samples = static_cast<double>(scoring.rows_of.size());
  say(scoring.output.rows, " rows of ", scoring.output.columns.size(), " in ",
      short_number(took.count()), " s (", short_number(samples / took.count()), " ", scoring.what,
      "/s)", options.output.empty() ? "" : ": " + options.output);
}

}  // namespace

void start_scoring(const ScoreOptions& options, const Scoring& scoring,
                   const dhp::TrainingRun<Dev>::Describe& describe) {
  start_ranks(options.run, [&](Dev& dev, dhp::Comm<Dev> world, dhp::Deadlines*) {
    score(dev, std::move(world), options, scoring, describe);
  });
}

}  // namespace examples
