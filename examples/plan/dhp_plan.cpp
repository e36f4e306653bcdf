// Finds the fastest layouts of a training on a cluster before it runs, with their time, memory and cost. The model runs
// on the device Meta, which computes nothing.
#include <dhp/ops/meta.hpp>

#include "../bert/model.hpp"
#include "../data/data.hpp"
#include "../gpt/model.hpp"
#include "../options/command_line.hpp"
#include "../options/given_values.hpp"
#include "../report/memory.hpp"
#include "../report/output_file.hpp"
#include "../resnet50/model.hpp"

#include <nlohmann/json.hpp>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <sstream>

namespace examples {
namespace {

struct Asked {
  std::string model = "bert";
  std::string json;
  int ranks = 0;
  std::size_t top = 10;
};

/// What the options describe, with data of the model's shapes.
struct Described : PlannedTraining {
  bool any_micro_batch = false;
};

/// Whether the user gave this option of the trainer.
[[nodiscard]] bool is_given(const RunOptions& options, const std::string& name) {
  return ("\n" + options.configuration).find("\n" + name + "=") != std::string::npos;
}

/// Whether the trainer's options, or the file of their --config, have a micro-batch.
[[nodiscard]] bool gives_micro_batch(const std::vector<std::string>& words) {
  const auto files = given_values(words, "--config");
  return std::any_of(words.begin(), words.end(),
                     [](const auto& word) { return word.starts_with("--micro-batch"); }) ||
         std::any_of(files.begin(), files.end(), [](const auto& file) {
           std::error_code none;
           if (!std::filesystem::is_regular_file(file, none)) return false;
           std::istringstream text(dhp::text_of(file));
           return std::ranges::any_of(CLI::ConfigBase().from_config(text), [](const auto& item) {
             return item.name.ends_with("micro-batch");  // perhaps behind a byte order mark
           });
         });
}

/// Parses the trainer's own options; gpu adds those of a build for GPUs. Returns an exit status if they are wrong.
[[nodiscard]] std::optional<int> describe(const std::string& model, int argc, char** argv, bool gpu,
                                          Described& made) {
  const auto keep = [&](auto& parsed) {
    auto& run = parsed.options.run;
    if (!parsed.exit_status && !is_given(run, "data")) run.data = "synthetic-resident";
    made.options = run;
    return parsed.exit_status;
  };
  if (model == "resnet50") {
    auto parsed = parse_resnet(argc, argv, gpu);
    if (const auto status = keep(parsed)) return status;
    parsed.options.normalize = "imagenet";  // avoids reading all images; no shape depends on it
    const auto& options = parsed.options;
    const auto data = load_images(options);
    made.batcher = data.train;
    made.equal_shares = options.sync_batch_norm;
    made.describe = planned_model(ResNetConfig{.depth = options.depth,
                                               .width = options.width,
                                               .image_size = data.image_size,
                                               .image_channels = data.channels,
                                               .classes = data.classes,
                                               .stem_stride = options.stem_stride,
                                               .synchronised_batch_norm = options.sync_batch_norm},
                                  resnet<dhp::Meta>);
    return {};
  }
  if (model == "gpt") {
    auto parsed = parse_gpt(argc, argv, gpu);
    if (const auto status = keep(parsed)) return status;
    if (!is_given(made.options, "vocabulary-size")) parsed.options.vocabulary_size = 50257;
    const auto data = load_gpt_text(parsed.options);
    made.batcher = data.train;
    made.describe = planned_model(data.config, gpt<dhp::Meta>);
    return {};
  }
  auto parsed = parse_bert(argc, argv, gpu);
  if (const auto status = keep(parsed)) return status;
  if (!is_given(made.options, "vocabulary-size")) parsed.options.vocabulary_size = 30522;
  const auto data = load_text(parsed.options, true);
  made.batcher = data.train;
  made.same_shapes = data.same_shapes;
  made.describe = planned_model(data.bert.config, bert<dhp::Meta>);
  return {};
}

[[nodiscard]] Choices choices_of(const Described& of, int ranks) {
  const auto& options = of.options;
  const auto given = layout_of(options);
  auto made = Choices::near(given, options.global_batch, of.equal_shares);
  made.ranks = {ranks};
  if (is_given(options, "data-parallel")) made.data = given.mesh.data;
  if (is_given(options, "tensor-parallel")) made.tensor = given.mesh.tensor;
  if (is_given(options, "pipeline-parallel")) made.pipeline = given.mesh.pipeline;
  const auto most = std::min<std::int64_t>(of.any_micro_batch ? options.global_batch : 0, 512);
  for (auto size = given.micro_batch + 1; size <= most; ++size)
    if (options.global_batch % size == 0) made.micro_batches.push_back(size);
  if (!is_given(options, "zero")) made.zero = {0, 1, 2, 3};
  if (!is_given(options, "recompute")) made.recompute = {false, true};
  if (is_given(options, "schedule")) return made;
  made.schedules.clear();  // 1F1B comes first; it is as fast as GPipe and holds less
  for (const auto& schedule : dhp::built_in_schedules()) {
    const auto needed = schedule.needed_chunks();
    if (schedule.name() == dhp::GPipe::name) continue;
    for (const int chunks : needed ? std::vector{*needed} : std::vector{2, 4})
      made.schedules.emplace_back(schedule, chunks);
  }
  return made;
}

/// A layout that fits, with the bytes that a rank of each of its stages holds.
struct Line {
  StepTime time;
  Layout layout;
  std::vector<double> stage_bytes;
};

class Page {
 public:
  Page(MemoryPlanner& planner, StepModel model, const Described& of, int ranks,
       std::int64_t samples)
      : planner_(planner), model_(std::move(model)), of_(of), ranks_(ranks), samples_(samples) {}

  /// The fastest layouts whose memory fits. It is counted by a step of the whole program.
  [[nodiscard]] std::vector<Line> best(std::size_t most) {
    auto choices = choices_of(of_, ranks_);
    choices.samples = samples_;
    std::vector<Line> kept;
    for (auto& [time, layout] : fastest(model_, choices, 4 * most + 200, &tried_)) {
      // After twice as many micro-batches as stages a schedule holds no more activations.
      const int many =
          layout.schedule.name() == dhp::GPipe::name ? 0 : 2 * layout.mesh.pipeline + 2;
      std::vector<double> bytes;
      for (const auto& stage : planner_.plan(layout, many))
        bytes.push_back(static_cast<double>(stage.most));
      if (bytes.empty()) continue;  // it cannot run
      const auto& cluster = model_.cluster();
      time.memory_bytes = std::ranges::max(bytes) * cluster.sharers(ranks_);
      if (time.memory_bytes <= cluster.memory_bytes) kept.push_back({time, layout, bytes});
      if (kept.size() == most) break;
    }
    return kept;
  }
  [[nodiscard]] std::size_t tried() const { return tried_; }

  void print(const std::vector<Line>& found) const {
    std::printf(
        "   layout (D x H x P)  schedule       micro zero rec  ms/step |  layers  tensor  pipeline"
        "    data  update  shared | idle %% wait %%  MFU %%     GB  samples/s      $\n");
    int number = 0;
    for (const auto& [time, layout, bytes] : found) {
      const auto& mesh = layout.mesh;
      auto shape = dhp::concat(mesh.data, "x", mesh.tensor, "x", mesh.pipeline);
      if (mesh.context > 1) shape += dhp::concat("x", mesh.context);
      auto schedule = mesh.pipeline == 1 ? std::string("-") : layout.schedule.name();
      if (layout.chunks > 1) schedule += dhp::concat(" ", layout.chunks);
      std::printf("%2d %-19s %-14s %5lld %4d %3s %8.2f |", ++number, shape.c_str(),
                  schedule.c_str(), static_cast<long long>(layout.micro_batch), layout.zero,
                  layout.recompute ? "yes" : "no", 1e3 * time.total());
      for (const double part : time.seconds()) std::printf(" %7.2f", 1e3 * part);
      std::printf(" | %6.1f %6.1f %6.1f %6.2f %10.1f %6.2f\n", 100 * time.idle_share,
                  100 * time.exposed_share(), 100 * utilisation(time), time.memory_bytes / 1e9,
                  samples_per_s(time), dollars(time));
      if (const auto& first = found[0].time; number > 1)
        std::printf("   slower than 1 by %.1f %%: %s\n", 100 * (time.total() / first.total() - 1),
                    why_slower(first, time).c_str());
    }
  }
  [[nodiscard]] std::string json(const std::vector<Line>& found) const {
    auto list = nlohmann::ordered_json::array();
    for (const auto& [time, layout, bytes] : found) {
      nlohmann::ordered_json parts;
      for (std::size_t at = 0; at < StepTime::parts.size(); ++at)
        parts[StepTime::parts.at(at)] = time.seconds().at(at);
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
                      {"utilisation", utilisation(time)},
                      {"samples_per_s", samples_per_s(time)},
                      {"dollars", dollars(time)}});
    }
    return list.dump(1) + "\n";
  }

 private:
  [[nodiscard]] double samples_per_s(const StepTime& time) const {
    return static_cast<double>(samples_) / time.total();
  }
  [[nodiscard]] double utilisation(const StepTime& time) const {
    const auto& c = model_.cluster();
    const bool half = of_.options.precision != dhp::accumulation_type(of_.options.precision);
    const double hosts = std::ceil(ranks_ / c.devices);
    const double devices = c.cores > 0 ? std::min<double>(c.cores * hosts, ranks_) : ranks_;
    return time.flop / time.total() / devices / (half ? c.flop_16 : c.flop_32);
  }
  [[nodiscard]] double dollars(const StepTime& time) const {
    const double epoch = of_.options.samples > 0 ? static_cast<double>(of_.options.samples) : 1e6;
    return model_.cluster().dollars * ranks_ / 3600 * epoch / samples_per_s(time);
  }

  MemoryPlanner& planner_;
  StepModel model_;
  const Described& of_;
  int ranks_;
  std::int64_t samples_;
  std::size_t tried_ = 0;
};

int plan(const Asked& asked, Cluster cluster, Described of) {
  const auto start = std::chrono::steady_clock::now();
  const OutputFile json("--json", asked.json);
  const auto& options = of.options;
  const int ranks = asked.ranks > 0 ? asked.ranks : options.mesh.size();
  dhp::check(ranks <= 1'000'000, "--gpus ", ranks, ": a million are the most that are planned");
  if (const double limit = options.memory_limit_gb * 1e9; limit > 0)
    cluster.memory_bytes = std::min(cluster.memory_bytes, limit * cluster.sharers(ranks));
  of.ranks = cluster.cores == 0         ? RanksAre::on_gpus
             : ranks <= cluster.devices ? RanksAre::threads
                                        : RanksAre::processes;
  MemoryPlanner planner(of);
  Page page(planner, planner.step_model(cluster), of, ranks, options.global_batch);
  const auto found = page.best(asked.top);
  dhp::check(page.tried() > 0, "no layout of ", ranks,
             " ranks has the axes that are given and work for each rank: give another --gpus or "
             "--global-batch, or fewer options that fix axes");
  if (found.empty()) {
    auto roomy = cluster;
    roomy.memory_bytes = std::numeric_limits<double>::infinity();
    Page any(planner, planner.step_model(roomy), of, ranks, options.global_batch);
    dhp::check(!any.best(1).empty(), "the model cannot be divided by any of ", page.tried(),
               " layouts of ", ranks, " ranks: give other --gpus, or other axes");
    dhp::fail("none of ", page.tried(), " layouts of ", ranks, " ranks fits ", cluster.name,
              options.memory_limit_gb > 0 ? " and --memory-limit" : "",
              ": give more --gpus, another --global-batch, or fewer options that fix axes");
  }
  json.write(page.json(found));
  std::printf("%s, %d %s, %lld samples a step: the best of %zu layouts\n", cluster.name.c_str(),
              ranks, ranks == 1 ? "rank" : "ranks", static_cast<long long>(options.global_batch),
              page.tried());
  page.print(found);
  // One host alone, with the same number of samples for each rank.
  if (const int host = static_cast<int>(cluster.devices);
      host < ranks && options.global_batch * host % ranks == 0) {
    const auto samples = options.global_batch * host / ranks;
    Page alone(planner, planner.step_model(cluster, samples), of, host, samples);
    if (const auto one = alone.best(1); !one.empty())
      std::printf("from one host of %d to %d ranks: %.1f %% efficient\n", host, ranks,
                  100 * one[0].time.total() / found[0].time.total());
  }
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  std::printf("$: of %s samples; planned in %.1f s\n",
              options.samples > 0 ? std::to_string(options.samples).c_str() : "a million",
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
      "It takes the options of the model's trainer, too: what they give is fixed, such as "
      "--global-batch and --precision, and the rest is searched.");
  app.add_option("--model", asked.model, "bert, gpt or resnet50",
                 CLI::IsMember({"bert", "gpt", "resnet50"}));
  app.add_option("--cluster", path, "TOML file of what a host has, as examples/plan/clusters has")
      ->required();
  app.add_option("--gpus", asked.ranks, "Ranks; else those of the given axes", positive_number());
  app.add_option("--top", asked.top, "Layouts to show", positive_number());
  app.add_option("--json", asked.json, "The same layouts, to this file");
  app.allow_extras();
  if (const auto status = app.read(argc, argv)) return *status;
  return exit_status_of([&] {
    auto words = app.remaining();
    Described of;
    of.same_shapes = true;
    of.any_micro_batch = !gives_micro_batch(words);
    if (of.any_micro_batch) words.insert(words.end(), {"--micro-batch", "1"});  // divides any batch
    std::vector<char*> rest{argv[0]};
    for (auto& word : words) rest.push_back(word.data());
    const auto cluster = Cluster::read(path);
    const auto status =
        describe(asked.model, static_cast<int>(rest.size()), rest.data(), cluster.cores == 0, of);
    if (status) return *status;
    return plan(asked, cluster, of);
  });
}
