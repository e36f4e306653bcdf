// Finds the fastest layouts of a training on a cluster before it runs, with their time, memory and cost. The model runs
// on the device Meta, which computes nothing.
#include <dhp/ops/meta.hpp>

#include "../bert/model.hpp"
#include "../data/data.hpp"
#include "../data/saved_resnet.hpp"
#include "../gpt/model.hpp"
#include "../options/command_line.hpp"
#include "../report/memory.hpp"
#include "../report/output_file.hpp"

#include <nlohmann/json.hpp>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>

namespace examples {
namespace {

struct Asked {
  std::string model = "bert";
  std::string json;
  int ranks = 0;
  int top = 10;
};

/// Returns whether the user gave this option of the trainer.
[[nodiscard]] bool is_given(const RunOptions& options, const std::string& name) {
  return ("\n" + options.configuration).find("\n" + name + "=") != std::string::npos;
}

/// Parses the trainer's own options; gpu adds those of a build for GPUs. Returns an exit status if they are wrong.
[[nodiscard]] std::optional<int> describe(const std::string& model, int argc, char** argv, bool gpu,
                                          PlannedTraining& result) {
  constexpr std::int64_t micro_batch = 1;  // divides any batch
  // Without --data the vocabulary is as large as published models', unless --vocabulary-size gives its size.
  bool has_words = false;
  const auto keep = [&](auto& parsed) {
    auto& run = parsed.options.run;
    has_words = is_given(run, "data") || is_given(run, "vocabulary-size");
    if (!is_given(run, "data")) run.data = "synthetic-resident";
    return parsed.exit_status;
  };
  if (model == "resnet50") {
    auto parsed = parse_resnet(argc, argv, gpu, micro_batch);
    if (const auto status = keep(parsed)) return status;
    auto& options = parsed.options;
    options.normalize = "imagenet";  // avoids reading all images; no shape depends on it
    const auto data = load_images(options);
    result = planned_of(options.run, data, resnet_config(options, data), resnet<dhp::Meta>);
    result.head = "fc.";
    result.waits_for_replicas = options.sync_batch_norm;
    result.same_shapes = true;
    return {};
  }
  if (model == "gpt") {
    auto parsed = parse_gpt(argc, argv, gpu, micro_batch);
    if (const auto status = keep(parsed)) return status;
    if (!has_words) parsed.options.vocabulary_size = 50257;
    const auto data = load_gpt_text(parsed.options);
    result = planned_of(parsed.options.run, data, data.config, gpt<dhp::Meta>);
    result.same_shapes = true;
    return {};
  }
  auto parsed = parse_bert(argc, argv, gpu, micro_batch);
  if (const auto status = keep(parsed)) return status;
  dhp::check(parsed.options.task == "pretrain", "--task ", parsed.options.task,
             " cannot be planned; only pretraining can");
  if (!has_words) parsed.options.vocabulary_size = 30522;
  const auto data = load_text(parsed.options, true);
  result = planned_of(parsed.options.run, data, data.bert.config, bert<dhp::Meta>);
  result.head = "cls.";
  result.same_shapes = data.same_shapes;
  return {};
}

/// Returns the samples of an epoch; a million if there are no data.
[[nodiscard]] std::int64_t epoch_of(const PlannedTraining& of) {
  const auto& options = of.options;
  if (!options.synthetic()) return of.train.size();
  return options.samples > 0 ? options.samples : 1'000'000;
}

[[nodiscard]] Choices choices_of(const PlannedTraining& of, int ranks) {
  const auto& options = of.options;
  const auto given = layout_of(options);
  auto result = Choices::near(given, options.global_batch, of.waits_for_replicas);
  result.ranks = {ranks};
  if (is_given(options, "data-parallel")) result.data = given.mesh.data;
  if (is_given(options, "tensor-parallel")) result.tensor = given.mesh.tensor;
  if (is_given(options, "pipeline-parallel")) result.pipeline = given.mesh.pipeline;
  const auto most = std::min<std::int64_t>(options.global_batch, 512);
  for (auto size = given.micro_batch + 1; size <= most; ++size)
    if (options.global_batch % size == 0 && !is_given(options, "micro-batch"))
      result.micro_batches.push_back(size);
  const bool bucketed = std::holds_alternative<dhp::Bucketed>(options.reducer);
  if (bucketed && !is_given(options, "zero")) result.zero = {0, 1, 2, 3};
  if (!is_given(options, "recompute")) result.recompute = {false, true};
  if (is_given(options, "schedule")) return result;
  result.schedules.clear();  // without GPipe: 1F1B, now first, is as fast and holds less
  for (const auto& schedule : dhp::built_in_schedules()) {
    const auto needed = schedule.needed_chunks();
    if (schedule.name() == dhp::GPipe::name) continue;
    for (const int chunks : needed ? std::vector{*needed} : std::vector{2, 4})
      result.schedules.emplace_back(schedule, chunks);
  }
  return result;
}

/// A layout that fits into memory.
struct Line {
  StepTime time;
  Layout layout;
  std::vector<double> stage_bytes;  ///< memory of a rank, by stage
  double samples_per_s, utilization, dollars;
};

struct Found {
  std::vector<Line> lines{};  ///< the fastest layout first
  Searched searched{};
  std::string why_not{};    ///< why a layout cannot run
  std::size_t planned = 0;  ///< layouts whose memory was counted
  bool given_up = false;    ///< further layouts may fit
};

/// Returns the fastest layouts of `ranks` ranks that fit into memory. A step of the training code counts the memory.
[[nodiscard]] Found best(MemoryPlanner& planner, const Cluster& cluster, const PlannedTraining& of,
                         int ranks, std::int64_t samples, std::size_t most) {
  const auto& options = of.options;
  planner.set_global_batch(samples);
  auto model = planner.step_model(cluster, samples);
  auto choices = choices_of(of, ranks);
  choices.samples = samples;
  const double hosts = std::ceil(ranks / cluster.devices);
  const double devices = cluster.cores > 0 ? std::min<double>(cluster.cores * hosts, ranks) : ranks;
  const double peak = cluster.products(options.store.compute);
  const auto epoch = static_cast<double>(epoch_of(of));
  Found found;
  std::size_t impossible = 0;
  const double limit = cluster.memory_bytes / cluster.sharers(ranks);
  const auto add = [&](const Timed& one) {
    auto [time, layout] = one;
    const bool goes_on = ++found.planned < 4 * most + 200;
    found.given_up = !goes_on;
    // After twice as many micro-batches as stages a schedule holds no more activations.
    const auto runs = layout.schedule.name() == dhp::GPipe::name ? 0 : 2 * layout.mesh.pipeline + 2;
    std::vector<double> bytes;
    for (const auto& stage : planner.plan(layout, runs, limit))
      bytes.push_back(static_cast<double>(stage.most));
    if (bytes.empty()) ++impossible;
    if (bytes.empty() || std::ranges::max(bytes) > limit) return goes_on;
    time.memory_bytes = std::ranges::max(bytes) * cluster.sharers(ranks);
    const double rate = static_cast<double>(samples) / time.total();
    found.lines.push_back({time, layout, bytes, rate, time.flop / time.total() / devices / peak,
                           cluster.dollars * ranks / 3600 * epoch / rate});
    return goes_on && found.lines.size() < most;
  };
  found.searched = search(model, choices, add);
  found.searched.possible -= impossible;
  found.why_not = planner.why_not(model);
  return found;
}

void print(const std::vector<Line>& found) {
  std::printf(
      "   layout (D x H x P)  schedule       micro zero rec  ms/step |  layers  tensor  pipeline"
      "    data  update  shared | idle %% wait %%  MFU %%     GB  samples/s      $\n");
  int number = 0;
  for (const auto& [time, layout, bytes, samples_per_s, utilization, dollars] : found) {
    const auto& mesh = layout.mesh;
    auto shape = dhp::concat(mesh.data, "x", mesh.tensor, "x", mesh.pipeline);
    if (mesh.context > 1) shape += dhp::concat("x", mesh.context);
    auto schedule = mesh.pipeline == 1 ? std::string("-") : layout.schedule.name();
    if (layout.chunks > 1) schedule += dhp::concat(" ", layout.chunks);
    std::printf("%2d %-19s %-14s %5lld %4d %3s %8.2f |", ++number, shape.c_str(), schedule.c_str(),
                static_cast<long long>(layout.micro_batch), layout.zero,
                layout.recompute ? "yes" : "no", 1e3 * time.total());
    for (const auto& [name, seconds] : time.parts()) std::printf(" %7.2f", 1e3 * seconds);
    std::printf(" | %6.1f %6.1f %6.1f %6.2f %10.1f %6.2f\n", 100 * time.idle_share,
                100 * time.exposed_share(), 100 * utilization, time.memory_bytes / 1e9,
                samples_per_s, dollars);
    if (const auto& first = found[0].time; number > 1)
      std::printf("   slower than 1 by %.1f %%: %s\n", 100 * (time.total() / first.total() - 1),
                  why_slower(first, time).c_str());
  }
}

[[nodiscard]] std::string json_of(const std::vector<Line>& found) {
  auto list = nlohmann::ordered_json::array();
  for (const auto& [time, layout, bytes, samples_per_s, utilization, dollars] : found) {
    nlohmann::ordered_json parts;
    for (const auto& [name, seconds] : time.parts()) parts[name] = seconds;
    list.push_back({{"mesh", {layout.mesh.data, layout.mesh.tensor, layout.mesh.pipeline}},
                    {"context", layout.mesh.context},
                    {"schedule", layout.schedule.name()},
                    {"chunks", layout.chunks},
                    {"micro_batch", layout.micro_batch},
                    {"zero", layout.zero},
                    {"recompute", layout.recompute},
                    {"seconds", time.total()},
                    {"parts", parts},
                    {"idle", time.idle_share},
                    {"memory_bytes", time.memory_bytes},
                    {"stage_bytes", bytes},
                    {"utilization", utilization},
                    {"samples_per_s", samples_per_s},
                    {"dollars", dollars}});
  }
  return list.dump(1) + "\n";
}

int plan(const Asked& asked, Cluster cluster, PlannedTraining of) {
  const auto start = std::chrono::steady_clock::now();
  const OutputFile json("--json", asked.json);
  const auto& options = of.options;
  const int ranks = asked.ranks > 0 ? asked.ranks : options.layout.size();
  dhp::check(!options.store.state_on_host, "--offload cannot be planned; leave it out");
  dhp::check(options.sums_all(),
             "--reducer: compressed and late gradients cannot be planned; give bucketed or plain");
  dhp::check(!options.tf32,
             "--tf32 cannot be planned; leave it out, and set device.tflops_32 of --cluster to the "
             "device's speed with TF32");
  dhp::check(!options.synthetic_gradients, "--synthetic-gradients cannot be planned; leave it out");
  dhp::check(ranks <= 1'000'000, "--gpus ", ranks, ": at most a million can be planned");
  if (const double limit = options.memory_limit_gb * 1e9; limit > 0)
    cluster.memory_bytes = std::min(cluster.memory_bytes, limit * cluster.sharers(ranks));
  of.ranks = cluster.cores == 0         ? RanksAre::on_gpus
             : ranks <= cluster.devices ? RanksAre::threads
                                        : RanksAre::processes;
  MemoryPlanner planner(of);
  const auto [found, searched, why_not, planned, given_up] =
      best(planner, cluster, of, ranks, options.global_batch, dhp::detail::as_size(asked.top));
  const auto all = dhp::concat(dhp::detail::pluralize(searched.all, "layout"), " of ",
                               dhp::detail::pluralize(ranks, "rank"));
  dhp::check(searched.all > 0, "no layout of ", dhp::detail::pluralize(ranks, "rank"),
             " has the given axes and keeps every rank busy: give another --gpus or "
             "--global-batch, or fewer options that fix axes");
  dhp::check(searched.possible > 0, "the model cannot be divided by any of ", all, ": ", why_not,
             why_not.empty() ? "" : "; ", "give other --gpus, or other axes",
             ranks > options.global_batch
                 ? dhp::concat(", or a larger --global-batch than ", options.global_batch,
                               ": each replica needs a sample")
                 : "");
  dhp::check(!found.empty(), "none of ",
             given_up ? dhp::concat("the ", planned, " fastest of ") : "", all, " fits ",
             cluster.name, options.memory_limit_gb > 0 ? " and --memory-limit" : "",
             ": give more --gpus, another --global-batch, or fewer options that fix axes");
  json.write(json_of(found));
  std::printf("%s, %s, %lld samples a step: the best of %zu layouts\n", cluster.name.c_str(),
              dhp::detail::pluralize(ranks, "rank").c_str(),
              static_cast<long long>(options.global_batch), searched.all);
  print(found);
  // One host alone, with the same number of samples for each rank.
  if (const int host = static_cast<int>(cluster.devices); host < ranks) {
    const auto samples = options.global_batch * host;
    const auto alone = samples % ranks != 0
                           ? std::vector<Line>()
                           : best(planner, cluster, of, host, samples / ranks, 1).lines;
    std::printf("from one host of %d to %d ranks: ", host, ranks);
    if (!alone.empty())
      std::printf("%.1f %% efficient\n", 100 * alone[0].time.total() / found[0].time.total());
    else if (samples % ranks != 0)
      std::printf("unknown, as one host's part of the samples is not a whole number\n");
    else std::printf("unknown, as no layout of one host fits the options and its memory\n");
  }
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  std::printf("$: of %lld samples; planned in %.1f s\n", static_cast<long long>(epoch_of(of)),
              taken.count());
  return 0;
}

}  // namespace
}  // namespace examples

int main(int argc, char** argv) {
  using namespace examples;
  Asked asked;
  std::string path;
  CommandLine app(
      "Plans a training: the fastest layouts of a model on a cluster, with time, memory and cost.\n"
      "It also takes the options of the model's trainer. Given values are fixed, such as "
      "--global-batch and --precision; the rest of the layout is searched.");
  app.add_option("--model", asked.model, "bert, gpt or resnet50",
                 CLI::IsMember({"bert", "gpt", "resnet50"}));
  app.add_option("--cluster", path, "TOML file of the cluster, as in examples/plan/clusters")
      ->required();
  app.add_option("--gpus", asked.ranks, "Number of ranks (default: product of the given axes)",
                 positive_number());
  app.add_option("--top", asked.top, "Number of layouts to show", positive_number());
  app.add_option("--json", asked.json, "File for the same layouts, as JSON");
  app.allow_extras();
  if (const auto status = app.read(argc, argv)) return *status;
  return exit_status_of([&] {
    auto words = app.remaining();
    PlannedTraining of;
    std::vector<char*> rest{argv[0]};
    for (auto& word : words) rest.push_back(word.data());
    const auto cluster = Cluster::read(path);
    std::error_code none;
    dhp::check(!std::filesystem::equivalent(asked.json, path, none), "--json ", asked.json,
               " is the file of --cluster; give another name");
    const auto status =
        describe(asked.model, static_cast<int>(rest.size()), rest.data(), cluster.cores == 0, of);
    if (status) return *status;
    return plan(asked, cluster, of);
  });
}
