// Trains one model in any layout of ranks and schedules and gathers the results into unsplit tensors.
#pragma once

#include <dhp/comm/mesh.hpp>
#include <dhp/extra/all_training_options.hpp>
#include <dhp/optim/optimizer_choice.hpp>
#include <dhp/parallel/data.hpp>
#include <dhp/parallel/pipeline.hpp>
#include <dhp/train/trainer.hpp>
#include <tests/support/device_ranks.hpp>

namespace tests {

struct Layout {
  dhp::MeshShape mesh{};
  dhp::AnySchedule schedule = dhp::OneForwardOneBackward{};
  int chunks = 1;
  friend std::string to_text(const Layout& layout) {
    return dhp::concat(to_text(layout.mesh), " ", layout.schedule.name(), " with ", layout.chunks,
                       " chunks");
  }
};

/// An interleaved schedule gets `chunks` chunks; the other schedules fix their own number.
inline Layout with_chunks(const dhp::MeshShape& mesh, const dhp::AnySchedule& kind, int chunks) {
  return {mesh, kind, kind.needed_chunks().value_or(chunks)};
}

struct RunSettings {
  dhp::DType compute = dhp::DType::f64;
  bool deterministic = false;
  int groups = 0;          ///< number of tensor groups, if deterministic
  int context_groups = 0;  ///< number of context groups, if deterministic
  dhp::ReducerChoice reducer = dhp::Bucketed{.bytes = 4096};
  dhp::Sharding sharding{};
  dhp::OptimizerChoice optimizer = dhp::SgdOptions{.momentum = 0.9, .weight_decay = 0.01};
  int steps = 5;
  std::int64_t micro_batches = 8;
  double lr = 0.05;
  double clip = 1;
  bool norms_know = true;  ///< Norms is given the replicas
  dhp::LossScaleOptions loss_scale{};
  int threads = 1;      ///< threads of each rank's device
  bool record = false;  ///< records steps, if the device can
};

/// Unsplit tensors by parameter name, and the loss curve.
struct RunResult {
  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<std::vector<bool>> skipped;  ///< [world rank][step]
  int replayed = 0;                        ///< number of replayed steps
  std::map<std::string, std::vector<double>> values;
  std::map<std::string, std::vector<double>> gradients;
};

/// Writes the elements of a local part to their places in the unsplit tensor.
inline void place_part(const dhp::ParameterSpec& spec, const std::vector<double>& part,
                       std::vector<double>& whole) {
  whole.resize(static_cast<std::size_t>(spec.shape.count()));
  std::int64_t inner = 1;
  const int dim = spec.is_split() ? spec.split_dim : 0;
  for (int after = dim + 1; after < spec.shape.rank(); ++after) inner *= spec.shape[after];
  const auto range = spec.is_split() ? spec.part : dhp::Range{0, spec.shape[0]};
  const auto local = range.size() * inner;
  const auto global = spec.shape[dim] * inner;
  for (std::size_t at = 0; at < part.size(); ++at) {
    const auto element = static_cast<std::int64_t>(at);
    whole[static_cast<std::size_t>(element / local * global + range.first * inner +
                                   element % local)] = part[at];
  }
}

template <class Dev>
std::vector<double> host_values(Dev& dev, dhp::InView<Dev> view) {
  dhp::Tensor<Dev> wide(dev, dhp::DType::f64, view.shape());
  cast(dev, view, wide.mut());
  return wide.template to_host<double>(dev);
}

/// Runs body(dev, mesh, pipeline, trainer) on each rank. make_model(build): the model; example(dev): any batch.
template <class Dev, class MakeModel, class Example, class Body>
void on_rank(Dev& dev, dhp::Comm<Dev> world, const Layout& layout, const RunSettings& settings,
             MakeModel make_model, Example example, Body body) {
  dhp::Mesh<Dev> mesh(std::move(world), layout.mesh);
  const dhp::ParameterStoreOptions store{.compute = settings.compute,
                                         .deterministic = settings.deterministic,
                                         .tensor_groups = settings.groups,
                                         .context_groups = settings.context_groups,
                                         .seed = 7,
                                         .sharding = settings.sharding};
  dhp::ModelBuilder<Dev> build(mesh, store);
  dhp::PipelineParallel<Dev> pipeline(dev, make_model(build), mesh,
                                      {.schedule = layout.schedule, .chunks = layout.chunks},
                                      example(dev), store);
  dhp::DataParallel replicas(dev, pipeline, mesh.data(), settings.reducer);
  dhp::Norms<Dev> norms(mesh.tensor(), mesh.pipeline(), pipeline.parameters_in_model(),
                        settings.norms_know ? replicas.replicas() : nullptr);
  const auto optimizer = make_optimizer(dev, pipeline.store(), norms, settings.optimizer);
  dhp::Trainer trainer(dev, replicas, mesh, *optimizer, norms,
                       {.learning_rate = {.peak = settings.lr},
                        .clip = settings.clip,
                        .loss_scale = settings.loss_scale,
                        .record = settings.record});
  body(dev, mesh, pipeline, trainer);
}

/// Runs on_rank for every rank of the layout, as threads of this process.
template <class Dev = dhp::Cpu, class MakeModel, class Example, class Body>
void on_each_rank(const Layout& layout, const RunSettings& settings, MakeModel make_model,
                  Example example, Body body) {
  on_ranks_of<Dev>(
      layout.mesh.size(),
      [&](Dev& dev, dhp::Comm<Dev> world) {
        on_rank(dev, std::move(world), layout, settings, make_model, example, body);
      },
      settings.threads);
}

/// The micro-batches of this rank's replica; make_batch(k) makes one.
template <class Dev, class MakeBatch>
dhp::StepBatches<Dev> assigned(dhp::Mesh<Dev>& mesh, std::int64_t micro_batches,
                               MakeBatch make_batch) {
  dhp::StepBatches<Dev> mine{.batches = {}, .micro_batches = micro_batches};
  const auto part = dhp::part_of(micro_batches, mesh.shape().data, mesh.data_index());
  for (auto k = part.first; k < part.last; ++k) mine.batches.push_back(make_batch(k));
  return mine;
}

/// Gathers the sharded weights of all buckets on every replica. They stay gathered.
template <class Dev>
void gather_weights(Dev& dev, dhp::ParameterStore<Dev>& store, dhp::Replicas<Dev>& replicas) {
  for (auto& bucket : store.buckets()) replicas.unshard(dev, *bucket);
  replicas.synchronize(dev);
}

/// Trains on one rank and adds its parts to the result. make_batch(dev, step, k) makes micro-batch k of a step.
template <class Dev, class Pipeline, class Trained, class MakeBatch>
void train_on_rank(Dev& dev, dhp::Mesh<Dev>& mesh, Pipeline& pipeline, Trained& trainer,
                   const RunSettings& settings, MakeBatch make_batch, std::mutex& mutex,
                   RunResult& result) {
  const auto rank = static_cast<std::size_t>(mesh.world().rank());
  for (int step = 0; step < settings.steps; ++step) {
    const auto report = trainer.step(assigned(
        mesh, settings.micro_batches, [&](std::int64_t k) { return make_batch(dev, step, k); }));
    result.skipped[rank].push_back(report.skipped);
    if (rank != 0) continue;
    result.replayed += report.replayed ? 1 : 0;
    result.losses.push_back(report.loss);
    result.norms.push_back(report.gradient_norm);
  }
  auto& store = pipeline.store();
  if (auto* replicas = trainer.replicas()) gather_weights(dev, store, *replicas);
  mesh.world().barrier();
  const std::lock_guard lock(mutex);
  for (const auto& parameter : store.parameters()) {
    if (mesh.data_index() != 0) continue;
    const auto& spec = parameter->spec;
    place_part(spec, host_values(dev, parameter->value), result.values[spec.name]);
    if (!parameter->gradient.empty())
      place_part(spec, host_values(dev, parameter->gradient), result.gradients[spec.name]);
  }
}

/// Trains on all ranks of the layout.
template <class Dev = dhp::Cpu, class MakeModel, class MakeBatch>
RunResult run_layout(const Layout& layout, const RunSettings& settings, MakeModel make_model,
                     MakeBatch make_batch) {
  RunResult result;
  result.skipped.resize(static_cast<std::size_t>(layout.mesh.size()));
  std::mutex mutex;
  on_each_rank<Dev>(
      layout, settings, make_model, [&](Dev& dev) { return make_batch(dev, 0, 0); },
      [&](Dev& dev, dhp::Mesh<Dev>& mesh, auto& pipeline, auto& trainer) {
        train_on_rank(dev, mesh, pipeline, trainer, settings, make_batch, mutex, result);
      });
  return result;
}

/// Trains on this device alone.
template <class Dev, class MakeModel, class MakeBatch>
RunResult run_alone(Dev& dev, const RunSettings& settings, MakeModel make_model,
                    MakeBatch make_batch) {
  RunResult result;
  result.skipped.resize(1);
  std::mutex mutex;
  on_rank(
      dev, dhp::Comm<Dev>(), {}, settings, make_model,
      [&](Dev& any) { return make_batch(any, 0, 0); },
      [&](Dev&, dhp::Mesh<Dev>& mesh, auto& pipeline, auto& trainer) {
        train_on_rank(dev, mesh, pipeline, trainer, settings, make_batch, mutex, result);
      });
  return result;
}

/// Largest difference of two sets of tensors, relative to the tensor's largest absolute value in `expected`; not
/// relative if that is below `absolute_below` (a true gradient of zero). Names the worst tensor.
struct Difference {
  double worst = 0;
  std::string tensor;
};
inline Difference difference(const std::map<std::string, std::vector<double>>& expected,
                             const std::map<std::string, std::vector<double>>& found,
                             double absolute_below = 1e-9) {
  Difference most;
  if (expected.size() != found.size()) return {HUGE_VAL, "the number of tensors"};
  for (const auto& [name, values] : expected) {
    const auto other = found.find(name);
    if (other == found.end() || other->second.size() != values.size()) return {HUGE_VAL, name};
    double largest = 0;
    double apart = 0;
    for (std::size_t at = 0; at < values.size(); ++at) {
      largest = std::max(largest, std::abs(values[at]));
      const double gap = std::abs(values[at] - other->second[at]);
      apart = std::isnan(gap) ? HUGE_VAL : std::max(apart, gap);
    }
    const double relative = largest < absolute_below ? apart : apart / largest;
    if (relative > most.worst) most = {relative, name};
  }
  return most;
}

}  // namespace tests
