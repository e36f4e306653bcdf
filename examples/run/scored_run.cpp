#include "scored_run.hpp"

#include <dhp/train/run_files.hpp>

#include "../report/progress.hpp"
#include "ranks.hpp"

#include <algorithm>
#include <chrono>
#include <iostream>
#include <utility>
#include <vector>

namespace examples {
namespace {

using Dev = dhp::DefaultDevice;

/// Adds the rows of a pass. next: the first sample of the pass; it advances.
void add_rows(const std::vector<dhp::HostArray>& arrays, const RowScoring& scoring,
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

}  // namespace

void start_loaded(const ScoreOptions& options, const ScoredModel& model,
                  const DescribeScored& describe, const std::function<void(ScoredRun&)>& body) {
  const auto& run_options = options.run;
  start_ranks(run_options, [&](Dev& dev, dhp::Comm<Dev> world, dhp::Deadlines*) {
    const bool prints = world.rank() == 0;
    dhp::Loader loader(dev, model.samples,
                       dhp::evaluation_pass({.global_batch = run_options.global_batch,
                                             .micro_batch = run_options.micro_batch}));
    dhp::TrainingRun<Dev> run(
        dev, observed(dev, std::move(world), run_options),
        {.layout = run_options.layout,
         .store = {.compute = run_options.store.compute, .initialize = false},
         .optimizer = dhp::SgdOptions{}},  // SGD needs no state
        [&](dhp::ModelBuilder<Dev>& build) {
          build.adapt(model.adapters);
          return describe(build);
        },
        loader);
    const auto loaded = run.files().load(
        run_options.load, {.only = true, .all = true, .adapter = run_options.tuning.adapter});
    ScoredRun scored{run, loader, [prints](const std::string& line) {
                       if (prints) std::cerr << line << "\n";
                     }};
    for (const auto& remark : loaded.remarks)
      scored.log((run_options.loads_only_weights() ? "" : "warning: ") + remark);
    scored.log(dhp::concat("loaded ", loaded.from, "; ", model.description, "; layout ",
                           to_text(run.mesh()), ", ", precision_name(run_options.store.compute)));
    loader.start_at({});
    body(scored);
  });
}

void start_scoring(const ScoreOptions& options, const RowScoring& scoring,
                   const DescribeScored& describe) {
  start_loaded(options, scoring, describe, [&](ScoredRun& scored) {
    const auto began = std::chrono::steady_clock::now();
    const auto predict_all = [&](RowFile* file) {
      for (std::size_t next = 0; !scored.loader.finished();) {
        const auto arrays = scored.run.predict(scored.loader.next());
        if (file != nullptr) add_rows(arrays, scoring, options.run.micro_batch, next, *file);
      }
    };
    if (scored.run.mesh().world().rank() != 0) return predict_all(nullptr);
    write_rows(scoring.output, [&](RowFile& file) { predict_all(&file); });
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    const auto samples = static_cast<double>(scoring.rows_of.size());
    scored.log(dhp::concat(dhp::detail::pluralize(scoring.output.rows, "row"), " of ",
                           scoring.output.columns.size(), " in ", short_number(took.count()),
                           " s (", short_number(samples / took.count()), " ", scoring.what, "/s)",
                           options.output.empty() ? "" : ": " + options.output));
  });
}

}  // namespace examples
