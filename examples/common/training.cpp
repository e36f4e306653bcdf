#include "training.hpp"

#include <dhp/comm/meet/address.hpp>
#include <dhp/comm/observe/check.hpp>
#include <dhp/comm/observe/trace.hpp>
#include <dhp/data/loader.hpp>
#include <dhp/data/resident.hpp>
#include <dhp/optim/lamb.hpp>
#include <dhp/optim/lars.hpp>
#include <dhp/optim/sgd.hpp>
#include <dhp/parallel/data.hpp>
#include <dhp/parallel/pipeline.hpp>
#include <dhp/train/checkpoint.hpp>
#include <dhp/train/trainer.hpp>

#include "progress.hpp"
#include "ranks.hpp"
#include "trace_report.hpp"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>

namespace examples {
namespace {

[[nodiscard]] std::unique_ptr<dhp::Optimizer<Dev>> make_optimizer(Dev& dev,
                                                                  dhp::ParameterStore<Dev>& store,
                                                                  const dhp::Norms<Dev>& norms,
                                                                  const RunOptions& options) {
  if (options.optimizer == "sgd")
    return std::make_unique<dhp::Sgd<Dev>>(dev, store,
                                           dhp::SgdOptions{.momentum = options.momentum,
                                                           .nesterov = options.nesterov,
                                                           .weight_decay = options.weight_decay});
  if (options.optimizer == "lars")
    return std::make_unique<dhp::Lars<Dev>>(
        dev, store, norms,
        dhp::LarsOptions{.momentum = options.momentum, .weight_decay = options.weight_decay});
  if (options.optimizer == "adamw")
    return std::make_unique<dhp::AdamW<Dev>>(
        dev, store, dhp::AdamOptions{.weight_decay = options.weight_decay});
  if (options.optimizer == "lamb")
    return std::make_unique<dhp::Lamb<Dev>>(
        dev, store, norms, dhp::AdamOptions{.epsilon = 1e-6, .weight_decay = options.weight_decay});
  dhp::fail("unknown --optimizer \"", options.optimizer, "\"; choose sgd, lars, adamw or lamb");
}

/// The most memory that the device has held for its tensors, where it counts that.
template <class D>
void add_peak_memory(D& dev, std::vector<std::pair<std::string, double>>& fields) {
  if constexpr (requires { dev.memory().most_held_bytes(); })
    fields.emplace_back("peak_memory_bytes", static_cast<double>(dev.memory().most_held_bytes()));
}

/// What libraries of the device have refused since this was asked last; where it has none, nothing.
template <class D>
[[nodiscard]] std::vector<std::string> new_refusals(D& dev) {
  if constexpr (requires { library_refusals(dev); }) return library_refusals(dev);
  else return {};
}

/// Rows of tokens in a step's micro-batches, padding included; 0 where a model has none.
[[nodiscard]] std::int64_t token_rows(const std::vector<dhp::MicroBatch<Dev>>& batches) {
  std::int64_t rows = 0;
  for (const auto& batch : batches)
    if (batch.has("token_ids")) rows += batch.at("token_ids").count();
  return rows;
}

/// The world with what is to be looked at in each of its calls.
[[nodiscard]] dhp::Comm<Dev> observed(Dev& dev, dhp::Comm<Dev> world, const RunOptions& options) {
  if (world.size() == 1) return world;
  if (options.check_collectives)
    world = dhp::observe<Dev>(world, std::make_shared<dhp::CallChecking<Dev>>(dev, world));
  if (dev.trace())
    world = dhp::observe<Dev>(world, std::make_shared<dhp::CallTracing<Dev>>(dev, world));
  return world;
}

/// One rank's run; rank 0 alone speaks and writes.
class TrainingRun {
 public:
  TrainingRun(Dev& dev, dhp::Comm<Dev> world, const TrainingSetup& setup, dhp::Deadlines* deadlines)
      : dev_(dev),
        options_(setup.options),
        deadlines_(deadlines),
        mesh_(observed(dev, std::move(world), options_), options_.mesh),
        setup_(setup),
        loader_(dev, setup.train, loader_options()),
        pipeline_(dev, described(setup), mesh_, pipeline_options(), example()),
        replicas_(dev, pipeline_, mesh_.data(), reducer()),
        norms_(mesh_.tensor(), mesh_.pipeline(), pipeline_.parameters_in_model()),
        optimizer_(make_optimizer(dev, pipeline_.store(), norms_, options_)) {
    if (options_.resident()) resident_.emplace(dev, setup.train, loader_options());
  }

  void run() {
    const std::int64_t total = total_steps();
    check_shares(total);
    dhp::Trainer trainer(dev_, replicas_, mesh_, *optimizer_, norms_, trainer_options(total));
    dhp::Checkpoint<Dev> checkpoint(mesh_, pipeline_.store(), *optimizer_);
    if (!options_.save.empty()) checkpoint.prepare(options_.save);
    if (!options_.load.empty()) {
      const auto progress = checkpoint.load(dev_, options_.load);
      dhp::check(progress.steps < total, "--load ", options_.load, " is after step ",
                 progress.steps, " and this run ends after step ", total,
                 ": --steps and --epochs count from the start of the run that is gone on with");
      trainer.resume(progress);
      if (rank_zero()) say_loaded(progress);
    }
    const auto first_step = trainer.steps_done();
    loader_.start_at(first_step);
    Metrics metrics(rank_zero() ? options_.metrics : "", !options_.load.empty());
    if (rank_zero()) progress_ = std::make_unique<Progress>(first_step, total);
    introduce(total);
    TraceReport traced(dev_, mesh_.world(), options_.trace);
    report_transports();
    evaluate(trainer, metrics, "at the start");

    // A step's numbers are read when the next one has been started: the device never waits for them.
    std::optional<dhp::StepTicket<Dev>> under_way;
    auto since = std::chrono::steady_clock::now();
    std::int64_t samples_under_way = 0, rows_under_way = 0;
    const auto finish = [&] {
      if (!under_way) return;
      const auto report = trainer.finish(*under_way);
      under_way.reset();
      recorded_steps_ += report.recorded ? 1 : 0;
      traced.settle();
      const auto now = std::chrono::steady_clock::now();
      const std::chrono::duration<double> taken = now - since;
      since = now;
      if (!rank_zero()) return;
      const double rate = static_cast<double>(samples_under_way) / taken.count();
      metrics.write(fields(report, rate, rows_under_way));
      progress_->step(report.step, report.loss, taken.count(), rate,
                      report.skipped ? "skipped: gradients overflowed" : "");
      for (const auto& line : new_refusals(dev_)) say(line);
    };
    for (auto section = dhp::Section::first_step; trainer.steps_done() < total;
         section = dhp::Section::step) {
      enter(section);
      const auto plan = resident_ ? resident_->plan() : loader_.plan();
      const bool alike = setup_.same_shapes && plan.samples == options_.global_batch;
      const auto batches = next_batches();
      auto ticket = trainer.start(batches, plan.micro_batches(), alike);
      finish();
      under_way = std::move(ticket);
      samples_under_way = plan.samples;
      rows_under_way = token_rows(batches);
      traced.step_started();
      const auto step = trainer.steps_done();
      const bool last = step == total;
      const bool evaluates = options_.evaluate_every > 0 && step % options_.evaluate_every == 0;
      const bool saves = options_.save_every > 0 && step % options_.save_every == 0;
      // On the Cpu the step has been done by now.
      if (!on_gpu || last || evaluates || saves) finish();
      if (evaluates && !last) evaluate(trainer, metrics, dhp::concat("after step ", step));
      if (saves && !last) save(checkpoint, trainer);
      if (evaluates || saves) since = std::chrono::steady_clock::now();
    }
    if (rank_zero()) progress_->finish();
    report_recorded(total - first_step);
    evaluate(trainer, metrics, "at the end");
    if (!options_.save.empty()) save(checkpoint, trainer);
    if (!dev_.trace()) return;
    const double exposed = traced.end([&](const std::string& line) { say(line); });
    if (rank_zero())
      metrics.write({{"step", static_cast<double>(total)}, {"exposed_communication", exposed}});
  }

 private:
  using Pipeline = dhp::PipelineParallel<Dev>;
  using Replicas = dhp::DataParallel<Dev, Pipeline, dhp::ReducerChoice>;

  void enter(dhp::Section section) {
    if (deadlines_ != nullptr) deadlines_->enter(section);
  }
  [[nodiscard]] bool rank_zero() { return mesh_.world().rank() == 0; }
  void say(const std::string& text) {
    if (progress_) progress_->line(text);
    else std::fprintf(stderr, "%s\n", text.c_str());
  }

  [[nodiscard]] dhp::LoaderOptions loader_options() {
    return {.global_batch = options_.global_batch,
            .micro_batch = options_.micro_batch,
            .replica = mesh_.data().rank(),
            .replicas = mesh_.data().size(),
            .seed = options_.seed,
            .threads = options_.resident() ? 0 : options_.loader_threads};
  }
  [[nodiscard]] dhp::Model<Dev> described(const TrainingSetup& setup) {
    dhp::Build<Dev> build;
    build.compute = options_.compute();
    build.tensor = mesh_.tensor();
    build.data = mesh_.data();
    return setup.make_model(build);
  }
  [[nodiscard]] dhp::PipelineOptions pipeline_options() const {
    return {.schedule = dhp::parse_schedule(options_.schedule),
            .chunks = options_.pipeline_chunks,
            .store = {.compute = options_.compute(),
                      .order_free = options_.deterministic,
                      .seed = options_.seed},
            .measure_costs = options_.stage_costs == "measured"};
  }
  /// The first micro-batch of the first step, for the shapes that stages are cut by.
  [[nodiscard]] dhp::MicroBatch<Dev> example() {
    const auto plan = loader_.batching().plan(0);
    const auto samples = plan.samples_of(0);
    std::vector<std::int64_t> indices;
    for (auto sample = samples.first; sample < samples.last; ++sample) indices.push_back(sample);
    return dhp::upload(dev_, loader_.batcher().collate(indices, 0), 0, samples);
  }
  [[nodiscard]] dhp::TrainerOptions trainer_options(std::int64_t total) const {
    const bool half = options_.compute() == dhp::DType::f16;
    return {.learning_rate = learning_rate(options_, total),
            .clip = options_.clip,
            .loss_scale = {.dynamic = half, .initial = half ? 65536.0 : 1.0},
            .seed = options_.seed,
            .record = records_steps()};
  }
  [[nodiscard]] bool records_steps() const {
    if (dev_.trace()) return false;  // what happens when in a step that is one piece is not seen
    if (!shapes_stay()) return false;
    if (options_.mesh.size() == 1) return options_.cuda_graphs.value_or(true);
    // The host compares what ranks call, and graphs of several GPUs of one process may wait for each other.
    return options_.cuda_graphs.value_or(false) && options_.process() &&
           !options_.check_collectives;
  }
  [[nodiscard]] bool shapes_stay() const { return setup_.same_shapes || options_.resident(); }
  /// What came of it, where it was to be.
  void report_recorded(std::int64_t steps) {
    if (!on_gpu || !rank_zero() || !options_.cuda_graphs.value_or(records_steps())) return;
    say(dhp::concat("recorded as a CUDA graph: ", recorded_steps_, " of ", steps, " steps",
                    shapes_stay() ? "" : "; their shapes differ, see --layout"));
  }
  [[nodiscard]] std::int64_t total_steps() {
    if (options_.steps > 0) return options_.steps;
    const double epochs = options_.epochs > 0 ? options_.epochs : 1;
    const auto per_epoch = static_cast<double>(loader_.batching().steps_per_epoch());
    const double steps = std::ceil(epochs * per_epoch);
    constexpr double most = 1e15;  // beyond that a double does not count every step
    dhp::check(steps <= most, "--epochs ", options_.epochs, " of ", per_epoch,
               " steps are more steps than can be counted; choose fewer");
    return static_cast<std::int64_t>(steps);
  }

  /// What the order of samples depends on.
  [[nodiscard]] std::vector<std::pair<std::string, std::int64_t>> settings() const {
    return {{"seed", static_cast<std::int64_t>(options_.seed)},
            {"global_batch", options_.global_batch},
            {"micro_batch", options_.micro_batch},
            {"training_samples", loader_.batching().dataset_size()}};
  }
  void say_loaded(const dhp::TrainingProgress& progress) {
    say(dhp::concat("loaded ", options_.load, ": goes on after step ", progress.steps));
    for (const auto& [name, now] : settings())
      for (const auto& [key, saved] : progress.settings)
        if (key == name && saved != now)
          say(dhp::concat("warning: it was trained with ", name, " ", saved, ", this run has ", now,
                          ": samples come in another order from here on"));
  }

  /// The first step of an epoch is like all but the last one, which may be short.
  void check_shares(std::int64_t total) const {
    if (!setup_.waits_for_replicas || resident_) return;
    const auto last = loader_.batching().steps_per_epoch() - 1;
    for (const auto step : {std::int64_t{0}, last}) {
      if (step >= total) continue;
      const auto micro_batches = loader_.batching().plan(step).micro_batches();
      dhp::check(
          micro_batches % options_.mesh.data == 0, "step ", step + 1, " of an epoch has ",
          micro_batches, " micro-batches for ", options_.mesh.data,
          " replicas, but synchronised batch norm needs as many on each; choose --samples as "
          "a multiple of --global-batch");
    }
  }

  void introduce(std::int64_t total) {
    if (!rank_zero()) return;
    say(dhp::concat("layout ", to_text(mesh_), ", schedule ", options_.schedule, ", ",
                    options_.precision, ", ", loader_.batching().dataset_size(),
                    " training samples, ", total, " steps of ", options_.global_batch));
  }

  /// Where the ranks are, and how fast their axes. Threads of one process have no network to be wrong.
  void report_transports() {
    if (mesh_.world().size() == 1) return;
    if (!options_.process() && options_.min_bandwidth_gb_s == 0) return;
    const auto report = dhp::measure_transports(dev_, mesh_, dhp::host_name());
    if (rank_zero())
      for (const auto& line : report.lines()) say(line);
    report.check_bandwidth(options_.min_bandwidth_gb_s * 1e9);
  }

  [[nodiscard]] std::vector<dhp::MicroBatch<Dev>> next_batches() {
    const auto scope = dev_.scope("next batches");
    return resident_ ? resident_->next() : loader_.next();
  }

  template <class T>
  void evaluate(T& trainer, Metrics& metrics, const std::string& when) {
    if (setup_.held_out.size() == 0) return;
    enter(dhp::Section::evaluation);
    auto options = dhp::evaluation_pass(loader_options());
    dhp::Loader<Dev, AnyBatcher> loader(dev_, setup_.held_out, options);
    std::vector<dhp::LossTerm> terms(pipeline_.term_names().size());
    while (!loader.finished()) {
      const auto batches = loader.next();
      const auto loss = trainer.evaluate(batches);
      for (std::size_t term = 0; term < terms.size(); ++term) {
        terms[term].sum += loss.terms[term].sum;
        terms[term].count += loss.terms[term].count;
        terms[term].correct += loss.terms[term].correct;
        terms[term].correct_in_five += loss.terms[term].correct_in_five;
      }
    }
    if (!rank_zero()) return;
    const Measures found = setup_.measures(terms);
    std::string text = "evaluation " + when + ":";
    std::vector<std::pair<std::string, double>> line{
        {"step", static_cast<double>(trainer.steps_done())}};
    for (const auto& [name, value] : found) {
      text += dhp::concat("  ", name, " ", short_number(value));
      line.emplace_back("held_out_" + name, value);
    }
    say(text);
    metrics.write(line);
  }

  template <class T>
  void save(dhp::Checkpoint<Dev>& checkpoint, T& trainer) {
    enter(dhp::Section::saving);
    auto progress = trainer.progress();
    progress.settings = settings();
    checkpoint.save(dev_, options_.save, progress, [&](dhp::FileReplacement& files) {
      if (setup_.save_more) setup_.save_more(files, options_.save);
    });
    if (rank_zero())
      say(dhp::concat("saved ", options_.save, " after step ", trainer.steps_done()));
  }

  [[nodiscard]] std::vector<std::pair<std::string, double>> fields(const dhp::StepReport& report,
                                                                   double rate,
                                                                   std::int64_t rows) const {
    std::vector<std::pair<std::string, double>> fields{{"step", static_cast<double>(report.step)},
                                                       {"loss", report.loss},
                                                       {"grad_norm", report.gradient_norm},
                                                       {"lr", report.learning_rate},
                                                       {"samples_per_s", rate}};
    const auto names = pipeline_.term_names();
    if (names.size() > 1)
      for (std::size_t term = 0; term < names.size(); ++term)
        fields.emplace_back("loss_" + names[term], report.terms[term].mean());
    if (options_.precision == "fp16") {
      fields.emplace_back("loss_scale", report.loss_scale);
      fields.emplace_back("skipped", report.skipped ? 1 : 0);
    }
    if (rows > 0) fields.emplace_back("token_rows", static_cast<double>(rows));  // this replica's
    if (on_gpu) fields.emplace_back("recorded", report.recorded ? 1 : 0);
    add_peak_memory(dev_, fields);
    return fields;
  }

  [[nodiscard]] dhp::ReducerChoice reducer() const {
    if (options_.reducer == "plain") return dhp::Plain{};
    return dhp::Bucketed{.bytes = static_cast<std::size_t>(options_.bucket_mb * 1048576)};
  }

  Dev& dev_;
  const RunOptions& options_;
  dhp::Deadlines* deadlines_;
  dhp::Mesh<Dev> mesh_;
  const TrainingSetup& setup_;
  dhp::Loader<Dev, AnyBatcher> loader_;
  Pipeline pipeline_;
  Replicas replicas_;
  std::optional<dhp::ResidentLoader<Dev>> resident_;
  dhp::Norms<Dev> norms_;
  std::unique_ptr<dhp::Optimizer<Dev>> optimizer_;
  std::unique_ptr<Progress> progress_;
  std::int64_t recorded_steps_ = 0;
};

}  // namespace

void run_training(const TrainingSetup& setup) {
  start_ranks<Dev>(setup.options,
                   [&](dhp::Comm<Dev> world, int local_rank, dhp::Deadlines* deadlines) {
                     auto dev = make_device<Dev>(setup.options, local_rank);
                     TrainingRun(dev, std::move(world), setup, deadlines).run();
                   });
}

int exit_status_of(const std::function<void()>& body) {
  try {
    body();
    return 0;
  } catch (const dhp::Error& error) {
    std::fprintf(stderr, "error: %s\n", error.sentence().c_str());
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "error: out of memory; a smaller model or micro-batch needs less\n");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
  }
  return 1;
}

}  // namespace examples
