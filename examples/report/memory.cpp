#include "memory.hpp"

#include <examples/h100x8.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

namespace examples {
namespace {
/// The number of micro-batches that a plan considers if their shapes differ.
constexpr std::int64_t different_shapes = 16;

/// Returns the options of `layout` that differ from those of `from`.
std::string flags(const Layout& layout, const Layout& from) {
  std::string text;
  const auto add = [&](bool differs, const char* name, auto value) {
    if (differs) text += dhp::concat(text.empty() ? "" : " ", name, " ", value);
  };
  const auto& mesh = layout.mesh;
  add(mesh.data != from.mesh.data, "--data-parallel", mesh.data);
  add(mesh.tensor != from.mesh.tensor, "--tensor-parallel", mesh.tensor);
  add(mesh.pipeline != from.mesh.pipeline, "--pipeline-parallel", mesh.pipeline);
  add(layout.zero != from.zero, "--zero", layout.zero);
  add(layout.micro_batch != from.micro_batch, "--micro-batch", layout.micro_batch);
  if (layout.recompute != from.recompute) text += text.empty() ? "--recompute" : " --recompute";
  return text;
}
}  // namespace

Layout layout_of(const RunOptions& options) {
  return {options.layout,
          options.pipeline.schedule,
          options.pipeline.chunks,
          options.micro_batch,
          static_cast<int>(options.store.sharding.stage),
          options.recompute};
}
void choose(RunOptions& options, const Layout& layout) {
  options.layout = layout.mesh;
  options.pipeline.schedule = layout.schedule;
  options.pipeline.chunks = layout.chunks;
  options.micro_batch = layout.micro_batch;
  options.store.sharding.stage = static_cast<dhp::ZeroStage>(layout.zero);
  options.recompute = layout.recompute;
}

std::int64_t MemoryPlanner::samples() const {
  return of_.options.resident() ? of_.options.global_batch
                                : std::min(of_.options.global_batch, of_.train.size());
}

/// Returns a few micro-batches of this many samples; one if all have the same shapes.
const std::vector<dhp::HostBatch>& MemoryPlanner::batches_of(std::int64_t micro_batch) {
  auto& batches = batches_[micro_batch];
  if (!batches.empty()) return batches;
  const auto size = std::min(micro_batch, of_.train.size());
  // Resident data are the micro-batches of one step, again and again.
  const auto all = of_.options.resident() ? samples() : of_.train.size();
  const auto count =
      of_.same_shapes ? 1 : std::clamp<std::int64_t>(all / size, 1, different_shapes);
  for (std::int64_t k = 0; k < count; ++k) {
    std::vector<std::int64_t> indices;
    for (std::int64_t sample = 0; sample < size; ++sample)
      indices.push_back((k * size + sample) % of_.train.size());
    batches.push_back(of_.train.collate(indices, 0));
  }
  return batches;
}

MemoryPlanner::Planned MemoryPlanner::planned(const RunOptions& options, std::int64_t runs) {
  const auto& batches = batches_of(options.micro_batch);
  const auto count = std::ssize(batches);
  const auto size = options.micro_batch;
  const auto micro_batches = std::max<std::int64_t>(samples() / size, 1);
  auto share = dhp::part_of(micro_batches, options.layout.data, 0).size();
  if (runs > 0) share = std::min(share, runs);
  return {.options = options.training(std::max<std::int64_t>(options.steps.value_or(0), 3)),
          .describe =
              [&](auto& build) {
                return describe_tuned(build, of_.options.tuning, of_.head, [&](auto& same) {
                  return of_.plan_model(same, options.recompute);
                });
              },
          .batch =
              [&batches, count, size](dhp::Meta& dev, std::int64_t k) {
                return dhp::upload(dev, batches[static_cast<std::size_t>(k % count)], k,
                                   {k * size, (k + 1) * size});
              },
          .micro_batches = micro_batches,
          .runs = runs,
          .prepare = [&](auto& run, const auto& example) { options.prepare(run, example); },
          .steps = static_cast<int>((count + share - 1) / share),
          .threads = of_.ranks == RanksAre::threads,
          .recomputes = options.recompute};
}

std::vector<dhp::MemoryPlan> MemoryPlanner::plan(const Layout& layout, std::int64_t runs,
                                                 double limit) {
  auto options = of_.options;
  choose(options, layout);
  const bool gpu = of_.ranks == RanksAre::on_gpus;
  std::vector<dhp::MemoryPlan> stages;
  if (of_.train.size() == 0) return stages;
  try {
    const auto run = planned(options, runs);
    for (int stage = 0; stage < options.layout.pipeline; ++stage) {
      auto& plan =
          stages.emplace_back(dhp::plan_memory(run, stage, {.min_step = gpu ? 256u : 64u}));
      // A GPU's free blocks can be reused, but not those of a recorded step.
      if (gpu && !options.records_steps(of_.same_shapes)) plan.most = plan.max_in_use;
      if (static_cast<double>(plan.most) > limit) break;
    }
  } catch (const dhp::Error& error) {
    if (why_not_.empty()) why_not_ = error.sentence();
    return {};
  }
  return stages;
}
std::size_t MemoryPlanner::need(const Layout& layout, std::int64_t runs) {
  std::size_t most = 0;
  for (const auto& stage : plan(layout, runs)) most = std::max(most, stage.most);
  return most;
}
const std::vector<dhp::MemoryPlan>& MemoryPlanner::stages() {
  if (!stages_) stages_ = plan(layout());
  return *stages_;
}

Cluster cluster_of(const RunOptions& options, bool gpu) {
  if (!options.cluster.empty()) return Cluster::read(options.cluster);
  if (!gpu) return {.cores = 0};
  return Cluster::parse(h100x8, "h100x8.toml");
}

StepModel MemoryPlanner::step_model(Cluster cluster, std::int64_t asked) {
  // cuDNN's attention takes the same time with dropout as without.
  if (of_.options.library_dropout) cluster.flop_dropout = std::numeric_limits<double>::infinity();
  const auto* const bucketed = std::get_if<dhp::Bucketed>(&of_.options.reducer);
  return StepModel(
      {.cluster = cluster,
       .products = of_.options.store.compute,
       .bucket_bytes = bucketed == nullptr ? 1e18 : static_cast<double>(bucketed->bytes),
       .samples = asked > 0 ? asked : samples(),
       .work = [this](const Layout& layout) { return work(layout); }});
}

MemoryPlanner::Counted MemoryPlanner::work(const Layout& layout) {
  const auto [known, fresh] = works_.try_emplace(
      {layout.mesh.tensor, layout.mesh.context, layout.micro_batch, layout.recompute});
  auto& result = known->second;
  if (!fresh) return result;
  // With synthetic-resident data, work is counted at powers of eight samples and interpolated. This would read more
  // samples of real data than were asked for.
  auto small = layout;
  for (small.micro_batch = 1; 8 * small.micro_batch <= layout.micro_batch;) small.micro_batch *= 8;
  const auto more = layout.micro_batch - small.micro_batch;
  if (of_.options.resident() && more > 0) {
    auto large = small;
    large.micro_batch *= 8;
    const auto from = work(small);
    if (!from) return result;  // no size can be split that way
    const auto to = work(large);
    const auto way = static_cast<double>(more) / static_cast<double>(7 * small.micro_batch);
    if (to) return result = std::make_shared<const ModelWork>(between(*from, *to, way));
  }
  auto options = of_.options;
  choose(options, layout);
  options.layout = {1, layout.mesh.tensor, 1, layout.mesh.context};
  try {
    result = std::make_shared<const ModelWork>(count_work(planned(options)));
  } catch (const dhp::Error& error) {  // the result stays null
    if (why_not_.empty()) why_not_ = error.sentence();
  }
  return result;
}

std::vector<std::string> MemoryPlanner::lines(const MemoryLimit& limit) {
  std::vector<std::string> lines;
  for (std::size_t stage = 0; stage < stages().size(); ++stage) {
    const auto& plan = stages()[stage];
    std::string where;
    for (std::size_t at = 1; at < plan.peak.size(); ++at)  // entry 0 is the step
      where += (at == 1 ? ", most in " : " > ") + plan.peak[at];
    lines.push_back(dhp::concat(
        "memory of a rank", stages().size() > 1 ? dhp::concat(" of stage ", stage) : std::string(),
        ": weights ", bytes_text(plan.weights), ", gradients ", bytes_text(plan.gradients),
        ", optimizer ", bytes_text(plan.optimizer), ", activations ",
        bytes_text(plan.activations()), " (", dhp::detail::pluralize(plan.in_flight, "micro-batch"),
        " in flight): ", bytes_text(plan.most), " of ", bytes_text(limit.bytes), where));
  }
  return lines;
}

std::vector<std::pair<double, Layout>> MemoryPlanner::nearest() const {
  const auto from = layout();
  const auto ranks = from.mesh.size();
  auto choices = Choices::near(from, of_.options.global_batch, of_.waits_for_replicas);
  choices.ranks.push_back(2 * ranks);
  while (choices.micro_batches.back() % 2 == 0)
    choices.micro_batches.push_back(choices.micro_batches.back() / 2);
  const bool bucketed = std::holds_alternative<dhp::Bucketed>(of_.options.reducer);
  for (int zero = from.zero + 1; bucketed && zero <= 3; ++zero) choices.zero.push_back(zero);
  if (!from.recompute) choices.recompute.push_back(true);
  const auto steps = [](auto first, auto second) {
    return std::abs(std::log2(static_cast<double>(second) / static_cast<double>(first)));
  };
  std::vector<std::pair<double, Layout>> found;
  for (const auto& layout : layouts_of(choices)) {
    const auto& mesh = layout.mesh;
    // More computation or more ranks count as a larger distance than more messages.
    const double distance =
        layout.zero - from.zero + steps(layout.micro_batch, from.micro_batch) +
        (layout.recompute != from.recompute ? 2 : 0) + steps(from.mesh.data, mesh.data) +
        2 * (steps(from.mesh.tensor, mesh.tensor) + steps(from.mesh.pipeline, mesh.pipeline)) +
        (mesh.size() > ranks ? 4 : 0);
    if (distance > 0) found.emplace_back(distance, layout);
  }
  std::ranges::stable_sort(found, {}, &std::pair<double, Layout>::first);
  return found;
}

void MemoryPlanner::check_fits(const MemoryLimit& limit) {
  if (stages().empty()) return;
  const auto& worst = *std::ranges::max_element(stages(), {}, &dhp::MemoryPlan::most);
  const auto most = worst.most;
  if (most <= limit.bytes) return;
  constexpr int max_tried = 100;
  std::string way_out;
  std::size_t least = most;
  int tried = 0;
  for (const auto& [distance, layout] : nearest()) {
    if (++tried > max_tried) break;
    const auto need = this->need(layout);
    if (need == 0 || need >= least) continue;
    const auto share = limit.of_host
                           ? limit.bytes * static_cast<std::size_t>(of_.options.layout.size()) /
                                 static_cast<std::size_t>(layout.mesh.size())
                           : limit.bytes;
    way_out = dhp::concat(flags(layout, layout_of(of_.options)), " takes ", bytes_text(need));
    if (need <= share) break;
    least = need;
    way_out = "no layout near it fits; " + way_out;
  }
  dhp::fail("a rank of ", of_.options.layout, " takes ", bytes_text(most), " (weights ",
            bytes_text(worst.weights), ", gradients ", bytes_text(worst.gradients), ", optimizer ",
            bytes_text(worst.optimizer), ", activations ", bytes_text(worst.activations()),
            "), but has ", bytes_text(limit.bytes), ", ", limit.from, "; ",
            way_out.empty() ? "no layout near it takes less" : way_out);
}

}  // namespace examples
