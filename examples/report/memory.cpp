#include "memory.hpp"

#include <algorithm>
#include <cmath>

namespace examples {
namespace {
/// Of so many micro-batches a plan is made where their shapes differ.
constexpr std::int64_t different_shapes = 16;
}  // namespace

/// Another way to run the same training.
struct MemoryPlanner::Candidate {
  RunOptions options;
  double distance = 0;  // of what it changes

  /// The options that differ.
  [[nodiscard]] std::string flags(const RunOptions& from) const {
    std::string text;
    const auto add = [&](bool differs, const char* name, auto value) {
      if (differs) text += dhp::concat(text.empty() ? "" : " ", name, " ", value);
    };
    const auto& mesh = options.mesh;
    add(mesh.data != from.mesh.data, "--data-parallel", mesh.data);
    add(mesh.tensor != from.mesh.tensor, "--tensor-parallel", mesh.tensor);
    add(mesh.pipeline != from.mesh.pipeline, "--pipeline-parallel", mesh.pipeline);
    add(options.sharding.stage != from.sharding.stage, "--zero",
        static_cast<int>(options.sharding.stage));
    add(options.micro_batch != from.micro_batch, "--micro-batch", options.micro_batch);
    if (options.recompute != from.recompute) text += text.empty() ? "--recompute" : " --recompute";
    return text;
  }
};

MemoryPlanner::MemoryPlanner(const RunOptions& options, AnyBatcher batcher,
                             DescribePlanned describe, bool same_shapes, bool equal_shares,
                             bool gpu)
    : options_(options),
      batcher_(std::move(batcher)),
      describe_(std::move(describe)),
      same_shapes_(same_shapes),
      equal_shares_(equal_shares),
      gpu_(gpu),
      stages_(plan(options)) {}

/// A few micro-batches of so many samples; one if they are alike.
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

std::vector<dhp::MemoryPlan> MemoryPlanner::plan(const dhp::MeshShape& layout) {
  auto options = options_;
  options.mesh = layout;
  return plan(options);
}
std::vector<dhp::MemoryPlan> MemoryPlanner::plan(const RunOptions& options) {
  std::vector<dhp::MemoryPlan> stages;
  if (batcher_.size() == 0) return stages;
  const auto samples =
      options.resident() ? options.global_batch : std::min(options.global_batch, batcher_.size());
  try {
    const auto& batches = batches_of(options.micro_batch);
    const auto count = std::ssize(batches);
    const auto size = options.micro_batch;
    const auto micro_batches = std::max<std::int64_t>(samples / size, 1);
    const auto share = dhp::part_of(micro_batches, options.mesh.data, 0).size();
    const dhp::PlannedRun<dhp::AllTrainingOptions> run{
        .options = options.training(std::max<std::int64_t>(options.steps.value_or(0), 3)),
        .describe = [&](auto& build) { return describe_(build, options.recompute); },
        .batch =
            [&](dhp::Meta& dev, std::int64_t k) {
              return dhp::upload(dev, batches[static_cast<std::size_t>(k % count)], k,
                                 {k * size, (k + 1) * size});
            },
        .micro_batches = micro_batches,
        .prepare =
            [&](auto& planned, const auto& example) {
              if (options.synthetic_gradients)
                options.synthetic_gradients->predict_in(planned, example);
            },
        .steps = static_cast<int>((count + share - 1) / share)};
    for (int stage = 0; stage < options.mesh.pipeline; ++stage)
      stages.push_back(dhp::plan_memory(run, stage, {.least_step = gpu_ ? 256u : 64u}));
  } catch (const dhp::Error&) {
    return {};
  }
  return stages;
}

std::size_t MemoryPlanner::most_of(const std::vector<dhp::MemoryPlan>& stages) const {
  std::size_t most = 0;
  for (const auto& plan : stages) most = std::max(most, need_of(plan));
  return most;
}

std::vector<std::string> MemoryPlanner::lines(const MemoryLimit& limit) const {
  std::vector<std::string> lines;
  for (std::size_t stage = 0; stage < stages_.size(); ++stage) {
    const auto& plan = stages_[stage];
    std::string where;
    for (std::size_t at = 1; at < plan.peak.size(); ++at)  // the first is the step
      where += (at == 1 ? ", most in " : " > ") + plan.peak[at];
    lines.push_back(dhp::concat(
        "memory of a rank", stages_.size() > 1 ? dhp::concat(" of stage ", stage) : std::string(),
        ": weights ", bytes_text(plan.weights), ", gradients ", bytes_text(plan.gradients),
        ", optimizer ", bytes_text(plan.optimizer), ", activations ",
        bytes_text(plan.activations()), " (", plan.in_flight,
        plan.in_flight == 1 ? " micro-batch" : " micro-batches",
        " in flight): ", bytes_text(need_of(plan)), " of ", bytes_text(limit.bytes), where));
  }
  return lines;
}

std::vector<MemoryPlanner::Candidate> MemoryPlanner::candidates() const {
  std::vector<Candidate> found;
  const auto& now = options_.mesh;
  const auto micro_batches = [](const RunOptions& options) {
    return options.global_batch / options.micro_batch;
  };
  const bool bucketed = std::holds_alternative<dhp::Bucketed>(options_.reducer);
  const auto steps = [](int from, int to) {
    return std::abs(std::log2(static_cast<double>(to) / from));
  };
  for (const int ranks : {now.size(), 2 * now.size()})
    for (int tensor = 1; tensor <= ranks; ++tensor)
      for (int pipeline = 1; pipeline <= ranks / tensor; ++pipeline) {
        const int others = tensor * pipeline * now.context;
        if (ranks % others != 0) continue;
        const dhp::MeshShape mesh{ranks / others, tensor, pipeline, now.context};
        for (int zero = static_cast<int>(options_.sharding.stage); zero <= 3; ++zero)
          for (auto micro_batch = options_.micro_batch; micro_batch >= 1; micro_batch /= 2) {
            for (const bool recompute : {false, true}) {
              Candidate candidate{options_};
              auto& options = candidate.options;
              options.mesh = mesh;
              options.sharding.stage = static_cast<dhp::ZeroStage>(zero);
              options.micro_batch = micro_batch;
              options.recompute = recompute || options_.recompute;
              const bool zero_now = zero == static_cast<int>(options_.sharding.stage);
              if ((recompute && options_.recompute) ||
                  (!zero_now && (mesh.replicas() == 1 || !bucketed)) ||
                  micro_batches(options) < mesh.data ||
                  (equal_shares_ && micro_batches(options) % mesh.data != 0))
                continue;
              // More computation or more ranks are further away than more messages.
              candidate.distance =
                  (zero - static_cast<int>(options_.sharding.stage)) +
                  std::log2(static_cast<double>(options_.micro_batch) /
                            static_cast<double>(micro_batch)) +
                  (recompute ? 2 : 0) + steps(now.data, mesh.data) +
                  2 * (steps(now.tensor, mesh.tensor) + steps(now.pipeline, mesh.pipeline)) +
                  (ranks > now.size() ? 4 : 0);
              if (candidate.distance > 0) found.push_back(std::move(candidate));
            }
            if (micro_batch % 2 != 0) break;
          }
      }
  std::stable_sort(found.begin(), found.end(),
                   [](const Candidate& a, const Candidate& b) { return a.distance < b.distance; });
  return found;
}

void MemoryPlanner::check_fits(const MemoryLimit& limit) {
  const auto most = most_of(stages_);
  if (most <= limit.bytes) return;
  constexpr int most_tried = 100;
  std::string way_out;
  std::size_t least = most;
  int tried = 0;
  for (const auto& candidate : candidates()) {
    if (++tried > most_tried) break;
    const auto need = most_of(plan(candidate.options));
    if (need == 0 || need >= least) continue;
    const auto share = limit.of_host
                           ? limit.bytes * static_cast<std::size_t>(options_.mesh.size()) /
                                 static_cast<std::size_t>(candidate.options.mesh.size())
                           : limit.bytes;
    way_out = dhp::concat(candidate.flags(options_), " takes ", bytes_text(need));
    if (need <= share) break;
    least = need;
    way_out = "no layout near it fits; " + way_out;
  }
  const auto& worst = *std::max_element(
      stages_.begin(), stages_.end(),
      [&](const dhp::MemoryPlan& a, const dhp::MemoryPlan& b) { return need_of(a) < need_of(b); });
  dhp::fail("a rank of ", options_.mesh, " takes ", bytes_text(most), " (weights ",
            bytes_text(worst.weights), ", gradients ", bytes_text(worst.gradients), ", optimizer ",
            bytes_text(worst.optimizer), ", activations ", bytes_text(worst.activations()),
            "), but has ", bytes_text(limit.bytes), ", ", limit.from, "; ",
            way_out.empty() ? "no layout near it takes less" : way_out);
}

}  // namespace examples
