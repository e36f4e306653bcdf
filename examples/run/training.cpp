#include "training.hpp"

#include "../options/agreement.hpp"
#include "../report/memory_use.hpp"
#include "layout_planner.hpp"
#include "program.hpp"
#ifdef DHP_HAS_ENGINE
#include "elastic_training.hpp"
#endif

namespace examples {
namespace {

#ifdef DHP_HAS_ENGINE
int run_elastic_training(const TrainingSetup& setup) {
  const auto& options = setup.options;
  const auto me = options.process();
  dhp::check(me.has_value(),
             "--elastic needs a process for each rank, but here ranks are threads of one process; "
             "start each with DHP_RANK, DHP_WORLD_SIZE and DHP_MASTER_ADDR, or by a launcher");
  auto& stopping = *options.stopping;
  auto dev = make_device<Dev>(options, me->local_rank);
  const auto deadlines = deadlines_of(options);
  ElasticTraining training(dev, setup, *deadlines, stopping);
  start_elastic_rank(*me, options, deadlines, training.elastic(),
                     [&](dhp::GenerationRank<Dev>& rank) { return training.run(rank); });
  return training.stopped() ? Stopping::exit_status : 0;
}
#else
[[noreturn]] int run_elastic_training(const TrainingSetup&) {
  dhp::fail(on_gpu ? "--elastic needs a build with NCCL and OpenSSL (in Debian libnccl-dev and "
                     "libssl-dev)"
                   : "--elastic needs a build with Gloo and OpenSSL (in Debian libgloo-dev and "
                     "libssl-dev)");
}
#endif

/// Chooses the fastest mesh of this number of ranks that fits into memory; all ranks use rank 0's choice.
void choose_axes(TrainingSetup& setup) {
  auto& options = setup.options;
  auto cluster = cluster_of(options, on_gpu);
  auto* const met = setup.met;
  if (options.memory_limit_gb > 0 || (met != nullptr && options.cluster.empty())) {
    double limit = options.memory_limit_gb * 1e9;
    if (limit == 0) limit = static_cast<double>(memory_limit(met->dev, options).bytes);
    cluster.memory_bytes = options.cluster.empty() ? limit : std::min(cluster.memory_bytes, limit);
  }
  MemoryPlanner planner(setup);
  auto model = planner.step_model(cluster);
  const auto given = planner.layout();
  int tries = 8;
  std::optional<Timed> best;
  const auto choices = Choices::near(given, options.global_batch, setup.waits_for_replicas);
  bool some_work = false, some_idle = false;  // among the layouts whose estimated memory fits
  const auto take = [&](const Timed& one) {
    const bool works = gives_work_to_all(setup, one.second.mesh);
    (works ? some_work : some_idle) = true;
    if (!works) return true;
    // The step model only estimates memory; the memory plan counts it.
    const auto need = options.memory_limit_gb == 0 ? 1 : planner.need(one.second);
    if (need > 0 && static_cast<double>(need) <= cluster.memory_bytes) best = one;
    return !best && --tries > 0;
  };
  const auto possible = search(model, choices, take).possible;
  auto mesh = best ? best->second.mesh : dhp::MeshShape{0, 0, 0, 1};
  if (met != nullptr) mesh = dhp::detail::gather_values(met->dev, met->world, mesh)[0];
  std::string why;
  if (possible == 0) why = planner.why_not(model);
  else if (some_idle && !some_work)
    why = "in some step replicas would have no micro-batch, or not equally many";
  dhp::check(mesh.data > 0, "--axes auto: no layout of ",
             dhp::detail::pluralize(given.mesh.size(), "rank"),
             why.empty() ? " fits this model and the memory of " + cluster.name
                         : " can run this model: " + why,
             "; give other ranks, or a smaller --micro-batch");
  options.layout = mesh;
  if (options.prints() && best)
    std::fprintf(stderr, "axes: %s, about %.3g s a step by %s\n", dhp::to_text(mesh).c_str(),
                 best->first.total(), cluster.name.c_str());
}

int run_connected(const RunOptions& options,
                  const std::function<int(ConnectedRank* met)>& load_and_train) {
  if (options.elastic || !options.process()) return load_and_train(nullptr);
  int status = 0;
  bool left = false;
  try {
    start_ranks(options, [&](Dev& dev, dhp::Comm<Dev> world, dhp::Deadlines* deadlines) {
      ConnectedRank met{dev, std::move(world), deadlines, left};
      status = load_and_train(&met);
    });
  } catch (const dhp::Error&) {
    if (!left) options.stopping->await_signal();
    if (!left) throw;
    std::fprintf(stderr, "%s\n", Stopping::nothing);
    return Stopping::exit_status;
  }
  return status;
}

}  // namespace

int run_with_options(const RunOptions& options, std::optional<int> exit_status,
                     const std::function<int(ConnectedRank* met)>& load_and_train) {
  if (exit_status) return end_before_rendezvous(options, *exit_status);
  return exit_status_of([&] {
    options.check_ranks();
    return run_connected(options, load_and_train);
  });
}

int run_training(const TrainingSetup& described) {
  auto setup = described;
  if (setup.options.axes == "auto") choose_axes(setup);
  const auto& options = setup.options;
  if (const auto& pipeline = options.pipeline; !options.evaluate_only && !options.elastic) {
    const auto step = batching_of(setup).plan(options.from.steps_done + 1).micro_batches();
    const auto share = dhp::part_of(step, options.layout.data, 0).size();
    (void)dhp::all_stages(pipeline.schedule, options.layout.pipeline, static_cast<int>(share),
                          pipeline.chunks);  // a file may be for other stages or micro-batches
  }
  const auto& stopping = setup.options.stopping;  // set by run_trainer
  if (setup.options.elastic) return run_elastic_training(setup);
  std::atomic<bool> stopped = false;
  MemoryPlanner memory(setup);
  const auto train = [&](Dev& dev, dhp::Comm<Dev> world, dhp::Deadlines* deadlines) {
    Program program(dev, std::move(world), setup, &memory, deadlines, *stopping);
    try {
      if (program.run() == RunEnd::stopped) stopped = true;
    } catch (const dhp::Aborted&) {
      if (setup.met != nullptr) setup.met->left = stopping->asked() && !program.has_steps();
      throw;
    }
  };
  if (auto* const met = setup.met) {
    check_same(met->dev, met->world, data_in_common(setup));
    train(met->dev, std::move(met->world), met->deadlines);
  } else {
    start_ranks(setup.options, train);
  }
  return stopped ? Stopping::exit_status : 0;
}

}  // namespace examples
