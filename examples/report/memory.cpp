#include "memory.hpp"

#include <algorithm>
#include <cmath>

namespace examples {
namespace {
/// Micro-batches that a plan looks at if their shapes differ.
constexpr std::int64_t different_shapes = 16;

/// The options that differ.
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
  return {options.mesh,        options.pipeline.schedule.name(),         options.pipeline.chunks,
          options.micro_batch, static_cast<int>(options.sharding.stage), options.recompute};
}
void choose(RunOptions& options, const Layout& layout) {
  if (layout.schedule != options.pipeline.schedule.name())
    options.pipeline.schedule = dhp::parse_schedule(layout.schedule);
  options.mesh = layout.mesh;
  options.pipeline.chunks = layout.chunks;
  options.micro_batch = layout.micro_batch;
  options.sharding.stage = static_cast<dhp::ZeroStage>(layout.zero);
  options.recompute = layout.recompute;
}

MemoryPlanner::MemoryPlanner(const RunOptions& options, AnyBatcher batcher,
                             DescribePlanned describe, bool same_shapes, bool equal_shares,
                             RanksAre ranks)
    : options_(options),
      batcher_(std::move(batcher)),
      describe_(std::move(describe)),
      same_shapes_(same_shapes),
      equal_shares_(equal_shares),
      ranks_(ranks) {}

/// A few micro-batches of this many samples; one if all have the same shapes.
const std::vector<dhp::HostBatch>& MemoryPlanner::batches_of(std::int64_t micro_batch) {
  auto& batches = batches_[micro_batch];
  if (!batches.empty()) return batches;
  const auto samples = std::min(micro_batch, batcher_.size());
  const auto count = same_shapes_ ? 1 : std::min(different_shapes, batcher_.size() / samples);
  for (std::int64_t k = 0; k < count; ++k) {
    std::vector<std::int64_t> indices;
    for (std::int64_t sample = 0; sample < samples; ++sample)
      indices.push_back(k * samples + sample);
    batches.push_back(batcher_.collate(indices, 0));
  }
  return batches;
}

MemoryPlanner::Planned MemoryPlanner::planned(const RunOptions& options) {
  const auto& batches = batches_of(options.micro_batch);
  const auto count = std::ssize(batches);
  const auto size = options.micro_batch;
  const auto samples =
      options.resident() ? options.global_batch : std::min(options.global_batch, batcher_.size());
  const auto micro_batches = std::max<std::int64_t>(samples / size, 1);
  const auto share = dhp::part_of(micro_batches, options.mesh.data, 0).size();
  return {.options = options.training(std::max<std::int64_t>(options.steps.value_or(0), 3)),
          .describe = [&](auto& build) { return describe_(build, options.recompute); },
          .batch =
              [&batches, count, size](dhp::Meta& dev, std::int64_t k) {
                return dhp::upload(dev, batches[static_cast<std::size_t>(k % count)], k,
                                   {k * size, (k + 1) * size});
              },
          .micro_batches = micro_batches,
          .prepare = [&](auto& run, const auto& example) { options.prepare(run, example); },
          .steps = static_cast<int>((count + share - 1) / share),
          .threads = ranks_ == RanksAre::threads};
}

std::vector<dhp::MemoryPlan> MemoryPlanner::plan(const Layout& layout, std::int64_t most) {
  auto options = options_;
  choose(options, layout);
  if (most > 0)
    options.global_batch =
        std::min(options.global_batch, most * layout.micro_batch * layout.mesh.data);
  std::vector<dhp::MemoryPlan> stages;
  if (batcher_.size() == 0) return stages;
  try {
    const auto run = planned(options);
    for (int stage = 0; stage < options.mesh.pipeline; ++stage)
      stages.push_back(
          dhp::plan_memory(run, stage, {.least_step = ranks_ == RanksAre::on_gpus ? 256u : 64u}));
  } catch (const dhp::Error&) {
    return {};
  }
  return stages;
}
const std::vector<dhp::MemoryPlan>& MemoryPlanner::stages() {
  if (!stages_) stages_ = plan(layout());
  return *stages_;
}

Cluster cluster_of(const RunOptions& options, bool gpu) {
  if (!options.cluster.empty()) return Cluster::read(options.cluster);
  if (!gpu) return {.cores = 0};
  return {.name = "H100",
          .devices = 8,
          .cores = 0,
          .flop_32 = 50e12,
          .flop_16 = 700e12,
          .bytes_per_s = 2.8e12,
          .launch_s = 3e-6,
          .memory_bytes = 80e9,
          .device = {3e-6, 300e9},
          .host = {15e-6, 40e9},
          .rack = {20e-6, 40e9}};
}

StepModel MemoryPlanner::step_model(const Cluster& cluster, std::int64_t asked) {
  const auto samples = options_.resident() ? options_.global_batch
                                           : std::min(options_.global_batch, batcher_.size());
  const auto* const bucketed = std::get_if<dhp::Bucketed>(&options_.reducer);
  return StepModel(
      {.cluster = cluster,
       .schedule =
           [own = options_.pipeline.schedule](const std::string& name) {
             return name == own.name() ? own : dhp::parse_schedule(name);
           },
       .half = options_.precision != dhp::accumulation_type(options_.precision),
       .bucket_bytes = bucketed == nullptr ? 1e18 : static_cast<double>(bucketed->bytes),
       .samples = asked > 0 ? asked : samples,
       .work =
           [this, known = std::map<WorkKey, Counted>()](const Layout& layout) mutable {
             const auto count = [&](std::int64_t micro_batch) -> Counted& {
               const auto [place, fresh] = known.try_emplace(
                   {layout.mesh.tensor, layout.mesh.context, micro_batch, layout.recompute});
               if (fresh) place->second = counted(layout, micro_batch);
               return place->second;
             };
             // Counts powers of eight of made data; reads no more real data than is asked.
             std::int64_t small = 1;
             while (8 * small <= layout.micro_batch) small *= 8;
             const bool made = options_.resident() && layout.micro_batch > small;
             const auto from = made ? count(small) : nullptr;
             const auto to = from ? count(8 * small) : nullptr;
             if (!to) return count(layout.micro_batch);
             const auto way = static_cast<double>(layout.micro_batch - small);
             return std::make_shared<const ModelWork>(
                 between(*from, *to, way / static_cast<double>(7 * small)));
           }});
}

MemoryPlanner::Counted MemoryPlanner::counted(const Layout& layout, std::int64_t micro_batch) {
  auto options = options_;
  auto alone = layout;
  alone.micro_batch = micro_batch;
  choose(options, alone);
  options.mesh = {1, layout.mesh.tensor, 1, layout.mesh.context};
  try {
    return std::make_shared<ModelWork>(count_work(planned(options)));
  } catch (const dhp::Error&) {
    return nullptr;
  }
}

std::size_t MemoryPlanner::most_of(const std::vector<dhp::MemoryPlan>& stages) const {
  std::size_t most = 0;
  for (const auto& plan : stages) most = std::max(most, need_of(plan));
  return most;
}

std::vector<std::string> MemoryPlanner::lines(const MemoryLimit& limit) {
  std::vector<std::string> lines;
  for (std::size_t stage = 0; stage < stages().size(); ++stage) {
    const auto& plan = stages()[stage];
    std::string where;
    for (std::size_t at = 1; at < plan.peak.size(); ++at)  // the first is the step
      where += (at == 1 ? ", most in " : " > ") + plan.peak[at];
    lines.push_back(dhp::concat(
        "memory of a rank", stages().size() > 1 ? dhp::concat(" of stage ", stage) : std::string(),
        ": weights ", bytes_text(plan.weights), ", gradients ", bytes_text(plan.gradients),
        ", optimizer ", bytes_text(plan.optimizer), ", activations ",
        bytes_text(plan.activations()), " (", plan.in_flight,
        plan.in_flight == 1 ? " micro-batch" : " micro-batches",
        " in flight): ", bytes_text(need_of(plan)), " of ", bytes_text(limit.bytes), where));
  }
  return lines;
}

std::vector<std::pair<double, Layout>> MemoryPlanner::nearest() const {
  const auto from = layout();
  const auto ranks = from.mesh.size();
  Choices choices{.ranks = {ranks, 2 * ranks},
                  .context = from.mesh.context,
                  .micro_batches = {from.micro_batch},
                  .zero = {},
                  .recompute = {from.recompute},
                  .schedules = {{from.schedule, from.chunks}},
                  .samples = options_.global_batch,
                  .equal_shares = equal_shares_};
  while (choices.micro_batches.back() % 2 == 0)
    choices.micro_batches.push_back(choices.micro_batches.back() / 2);
  const bool bucketed = std::holds_alternative<dhp::Bucketed>(options_.reducer);
  for (int zero = from.zero; zero <= (bucketed ? 3 : from.zero); ++zero)
    choices.zero.push_back(zero);
  if (!from.recompute) choices.recompute.push_back(true);
  const auto steps = [](auto first, auto second) {
    return std::abs(std::log2(static_cast<double>(second) / static_cast<double>(first)));
  };
  std::vector<std::pair<double, Layout>> found;
  for_each_layout(choices, [&](const Layout& layout) {
    const auto& mesh = layout.mesh;
    // More computation or more ranks are further away than more messages.
    const double distance =
        layout.zero - from.zero + steps(layout.micro_batch, from.micro_batch) +
        (layout.recompute != from.recompute ? 2 : 0) + steps(from.mesh.data, mesh.data) +
        2 * (steps(from.mesh.tensor, mesh.tensor) + steps(from.mesh.pipeline, mesh.pipeline)) +
        (mesh.size() > ranks ? 4 : 0);
    if (distance > 0) found.emplace_back(distance, layout);
  });
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  return found;
}

void MemoryPlanner::check_fits(const MemoryLimit& limit) {
  const auto most = most_of(stages());
  if (most <= limit.bytes) return;
  constexpr int most_tried = 100;
  std::string way_out;
  std::size_t least = most;
  int tried = 0;
  for (const auto& [distance, layout] : nearest()) {
    if (++tried > most_tried) break;
    const auto need = most_of(plan(layout));
    if (need == 0 || need >= least) continue;
    const auto share = limit.of_host
                           ? limit.bytes * static_cast<std::size_t>(options_.mesh.size()) /
                                 static_cast<std::size_t>(layout.mesh.size())
                           : limit.bytes;
    way_out = dhp::concat(flags(layout, layout_of(options_)), " takes ", bytes_text(need));
    if (need <= share) break;
    least = need;
    way_out = "no layout near it fits; " + way_out;
  }
  const auto& worst = *std::max_element(
      stages().begin(), stages().end(),
      [&](const dhp::MemoryPlan& a, const dhp::MemoryPlan& b) { return need_of(a) < need_of(b); });
  dhp::fail("a rank of ", options_.mesh, " takes ", bytes_text(most), " (weights ",
            bytes_text(worst.weights), ", gradients ", bytes_text(worst.gradients), ", optimizer ",
            bytes_text(worst.optimizer), ", activations ", bytes_text(worst.activations()),
            "), but has ", bytes_text(limit.bytes), ", ", limit.from, "; ",
            way_out.empty() ? "no layout near it takes less" : way_out);
}

}  // namespace examples
