#include "options.hpp"

#include <dhp/core/open_file.hpp>
#include <dhp/parallel/fixed_schedule.hpp>
#include <dhp/parallel/schedule_check.hpp>
#include <dhp/train/checkpoint_index.hpp>

#include "../bert/config.hpp"
#include "../gpt/config.hpp"
#include "common_options.hpp"
#include "configuration.hpp"
#include "idle_options.hpp"
#include "model_options.hpp"
#include "training_options.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>

namespace examples {
namespace {

constexpr double max_seconds = 1e9;  // thirty years

/// Option values. finish() makes objects from them once the whole command line is known.
struct Words {
  OptimizerWords optimizer{};
  ReducerWords reducer{};
};

/// Returns a built-in schedule by its name, or the schedule in a .csv file, which is proved.
[[nodiscard]] dhp::AnySchedule schedule_of(const std::string& name) {
  if (!name.ends_with(".csv")) return dhp::parse_schedule(name);
  dhp::check(!std::filesystem::exists(name) || std::filesystem::is_regular_file(name),
             "--schedule ", name, " is a device, a pipe or a folder; give a file");
  auto schedule = dhp::FixedSchedule::from_csv(name, dhp::text_of(name));
  const int stages = static_cast<int>(schedule.lists.size()), chunks = schedule.needed_chunks;
  const int micro_batches = schedule.lists.end_of_passes().micro_batch;
  dhp::check(micro_batches > 0, "--schedule ", name,
             " has no actions; write a line for each stage, such as 0F0,0B0");
  try {
    const auto lists = dhp::all_stages(schedule, stages, micro_batches, chunks);
    (void)dhp::check_schedule(lists, chunks, micro_batches, 1);
  } catch (const dhp::Error& error) {
    dhp::fail("--schedule ", name, " cannot run: ", error.sentence(),
              "; mend the list of that stage, or choose another schedule");
  }
  return schedule;
}

void add_device_options(CommandLine& app, RunOptions& options, bool gpu) {
  app.option_defaults()->group("Training");
  add_device_option(app, options, gpu);
  if (!gpu) return;
  add_choice(
      app, "--cuda-graphs,!--no-cuda-graphs", options.cuda_graphs,
      "Record steps of equal shapes as CUDA graphs (default: on with one rank, off with several)");
  app.add_option_function<std::string>(
         "--offload", [&](const std::string&) { options.store.state_on_host = true; },
         "optimizer: keep the optimizer state in host memory")
      ->check(CLI::IsMember({"optimizer"}));
  app.add_flag(
      "--tf32,!--no-tf32", options.tf32,
      "Round fp32 inputs of products and convolutions to TF32: faster, about as exact as fp16");
  app.add_flag("--library-dropout", options.library_dropout, "Let cuDNN draw attention's dropout");
  app.add_option("--cublas-sms", options.cublas_sms,
                 "Multiprocessors for matrix products, to leave others to NCCL; 0: all",
                 number_up_to(1000));
}

void add_run_options(CommandLine& app, RunOptions& options, Words& words) {
  app.option_defaults()->always_capture_default();
  const auto positive = positive_number();
  const auto not_negative = not_negative_number();

  add_mesh_options(app, options);
  std::string schedules;
  for (const auto& each : dhp::built_in_schedules()) schedules += each.name() + ", ";
  add_name(app, "--schedule", "1f1b", schedules + "or a .csv file with the actions of each stage",
           [&](const auto& name) { options.pipeline.schedule = schedule_of(name); });
  app.add_option("--pipeline-chunks", options.pipeline.chunks,
                 "Parts of the model per stage (for interleaved)", number_from_to(1, 1000));
  app.add_flag_callback(
         "--synthetic-gradients", [&] { options.synthetic_gradients.emplace(); },
         "Let stages go on with predicted gradients instead of waiting for true ones")
      ->group("Training");
  add_name(app, "--stage-costs", "computed",
           "Costs that balance the stages: computed (flops) or measured (time of each layer)",
           [&](const auto& name) { options.pipeline.measure_costs = name == "measured"; })
      ->check(CLI::IsMember({"computed", "measured"}));
  add_reducer_options(app, words.reducer);

  app.option_defaults()->group("Training");
  app.add_option("--global-batch", options.global_batch, "Samples per step, over all replicas",
                 number_from_to(1, 1e6));
  app.add_option("--micro-batch", options.micro_batch, "Samples per micro-batch",
                 number_from_to(1, 1e6));
  auto* steps = app.add_option("--steps", options.steps, "Steps to train; 0: none", not_negative);
  app.add_option("--epochs", options.epochs, "Passes over the data, instead of --steps", positive)
      ->excludes(steps);
  app.add_option("--stop-after", options.stop_after,
                 "Save and end after this step, as after a signal (status 75); 0: no",
                 not_negative);
  app.add_option("--seed", options.store.seed, "Seed of weights, dropout, order and masking");
  add_precision(app, options);
  app.add_flag("--deterministic", options.store.deterministic,
               "Exact sums: the same bits in every layout of ranks");
  app.add_option("--tensor-groups", options.store.tensor_groups,
                 "With --deterministic: pieces in which split layers are computed, a multiple of "
                 "--tensor-parallel; 0: the most that the model allows, up to 12",
                 number_up_to(dhp::detail::max_tree_leaves));
  app.add_flag("--recompute", options.recompute,
               "Keep only the inputs of blocks, and recompute the rest in the backward pass");
  app.add_option("--memory-limit", options.memory_limit_gb,
                 "Memory limit per rank in GB (10^9 bytes), above which a layout is refused; 0: "
                 "the free memory of host or GPU",
                 number_up_to(1e9));
  app.add_option("--loader-threads", options.loader_threads,
                 "Threads per rank that read ahead; 0: read between steps",
                 number_up_to(max_threads));
  app.add_option("--comm-timeout", options.comm_timeout,
                 "Seconds after which an incomplete collective ends the run; 0: never (default: "
                 "learned from the run)",
                 number_up_to(max_seconds));

  app.add_flag("--check-collectives", options.check_collectives,
               "Compare the ranks' calls before each collective; slow, for debugging");

  app.add_option("--verify-every", options.verify_every,
                 "With --deterministic: compute every Nth step twice to find faulty ranks; 0: none",
                 not_negative);

  add_process_options(app, options);
  app.add_option_function<std::string>(
      "--elastic", [&](const auto& text) { options.elastic = parse_elastic(text); },
      "LEAST:MOST replicas: the run goes on when ranks are lost, and takes in new ones");
  add_name(app, "--elastic-axes", "data",
           "With --elastic: axes that may change, data or all (tensor and pipeline, too)",
           [&](const auto& name) { options.elastic_axes = name == "all"; })
      ->check(CLI::IsMember({"data", "all"}));
  app.add_option("--store", options.etcd,
                 "With --elastic: etcd, http://HOST:2379,..., so that any rank may be lost")
      ->envname("DHP_STORE");
  app.add_option("--axes", options.axes,
                 "given, or auto: the planner chooses the axes, for the started processes or as "
                 "many threads as the given axes have",
                 CLI::IsMember({"given", "auto"}))
      ->group("Layout");
  app.add_option(
         "--cluster", options.cluster,
         "Cluster file for the planner, from dhp_doctor --calibrate; without it usual figures")
      ->group("Layout");
  app.add_option("--min-bandwidth", options.min_bandwidth_gb_s,
                 "GB/s that every axis must reach at the start; 0: no check", not_negative);
  add_optimizer_options(app, options, words.optimizer);

  app.option_defaults()->group("Data");
  app.add_option("--data", options.data, "Training data: a path, synthetic, or synthetic-resident");
  app.add_option("--samples", options.samples, "Samples to train on; 0: all", not_negative);
  app.add_option("--held-out", options.held_out,
                 "Fraction of the data held out for evaluation; 0: none", number_up_to(0.9));
  app.add_option("--evaluate-every", options.evaluate_every,
                 "Steps between evaluations; 0: at the start and the end only", not_negative);
  app.add_option("--evaluate-samples", options.evaluate_samples, "Samples to evaluate on; 0: all",
                 not_negative);

  app.option_defaults()->group("Output");
  app.add_flag("--evaluate-only", options.evaluate_only,
               "Evaluate the model of --load, without training");
  app.add_option("--metrics", options.metrics, "File for metrics, one JSON object per step");
  app.add_option("--tensorboard", options.tensorboard, "Directory for TensorBoard's event files");
  app.add_option("--trace", options.trace,
                 "File for a timeline of all ranks, in Chrome's trace format");
  app.add_option(
      "--trace-values", options.trace_values,
      "File for fingerprints of each layer's output and input gradient, for dhp_compare (with "
      "--stop-after of that step alone); slow");
  app.add_option("--peak-tflops", options.peak_tflops,
                 "Peak speed of a rank, in 10^12 multiplications and additions a second, for the "
                 "summary; 0: unknown",
                 not_negative);
  app.add_option("--flight-record", options.flight_record,
                 "File for a rank's last calls, with the rank added to its name; written at the "
                 "end and at SIGUSR1");
  app.add_option("--save", options.save, "Directory for checkpoints");
  app.add_option(
      "--resume", options.resume,
      "Directory of checkpoints: go on from the newest, if there is one, and save there");
  app.add_option("--save-every", options.save_every,
                 "Steps between checkpoints; 0: at the end only", not_negative);
  app.add_option("--keep", options.keep, "Newest checkpoints to keep; 0: all", not_negative);
  app.add_option("--keep-best", options.keep_best,
                 "With --keep: also keep the best checkpoint by this measure of the evaluations, "
                 "such as top1 or masked_loss");
  app.add_flag("--overwrite", options.overwrite,
               "Let --save and --metrics replace files of another run");
  app.add_option(
      "--export", options.export_to,
      "Directory for the trained weights alone, in the format of Hugging Face or torchvision");
  app.add_option("--grace", options.grace_s, "Seconds for saving after SIGTERM, SIGINT or SIGHUP",
                 number_from_to(0.001, max_seconds));
  app.add_option("--load", options.load,
                 "Directory of checkpoints to go on from; or a .safetensors file or published "
                 "folder to begin with");
  app.add_flag(
      "--load-all", options.load_all,
      "Require every weight in the .safetensors file; otherwise missing ones get initial values");
  app.add_flag("--new-head", options.new_head,
               "Give the last layers initial values, even if the .safetensors file has them");
  add_tuning_options(app, options);
}

void finish_layout(RunOptions& options) {
  auto& pipeline = options.pipeline;
  const int chunks = pipeline.schedule.needed_chunks().value_or(pipeline.chunks);
  dhp::check(pipeline.chunks == 1 || pipeline.chunks == chunks, "--pipeline-chunks ",
             pipeline.chunks, " needs --schedule interleaved; ", pipeline.schedule.name(),
             " keeps ", dhp::detail::pluralize(chunks, "part"), " per stage");
  pipeline.chunks = chunks;
  dhp::check(options.global_batch % options.micro_batch == 0, "--global-batch ",
             options.global_batch, " is not a multiple of --micro-batch ", options.micro_batch);
  if (options.axes != "auto") return;
  dhp::check(!options.elastic,
             "--axes auto does not work with --elastic; use --elastic-axes all there");
  if (const auto me = options.process())
    options.layout = {me->size / options.layout.context, 1, 1, options.layout.context};
}

/// Throws for options that do not go together and for files that do not fit, as far as this is known without data.
void check_together(const RunOptions& options) {
  const auto& tuning = options.tuning;
  const bool exact = options.store.deterministic, elastic = options.elastic.has_value();
  const bool only = options.evaluate_only, saves = !options.save.empty();
  const bool anew = options.loads_only_weights(), exports_adapter = !tuning.export_adapter.empty();
  for (const auto& [bad, sentence] :
       {std::pair{options.store.tensor_groups > 0 && !exact,
                  "--tensor-groups needs --deterministic"},
        {options.store.context_groups > 0 && !exact, "--context-groups needs --deterministic"},
        {options.verify_every > 0 && !exact,
         "--verify-every needs --deterministic, with which ranks have the same bits"},
        {only && options.load.empty(), "--evaluate-only needs --load PATH with the model"},
        {only && saves,
         anew ? "--evaluate-only leaves nothing to save; use --steps 0 to load and save"
              : "--evaluate-only leaves nothing to save: leave out --save"},
        {only && elastic, "--evaluate-only does not work with --elastic"},
        {only && !(options.trace.empty() && options.trace_values.empty()),
         "--evaluate-only has no steps: leave out --trace and --trace-values"},
        {options.elastic_axes && !elastic, "--elastic-axes all needs --elastic LEAST:MOST"},
        {!options.etcd.empty() && !elastic,
         "--store (or DHP_STORE) needs --elastic; in other jobs rank 0 holds the store"},
        {!options.trace_values.empty() && elastic,
         "--trace-values does not work with --elastic, where ranks change"},
        {options.cuda_graphs.value_or(false) && elastic,
         "ranks of an --elastic job agree in the middle of each step, which --cuda-graphs cannot "
         "record: leave one of them out"},
        {options.save_every > 0 && !saves, "--save-every needs --save DIR to write to"},
        {options.keep > 0 && !saves, "--keep needs --save DIR to write to"},
        {!options.export_to.empty() && !saves,
         "--export takes the weights of the last checkpoint: it needs --save DIR, too"},
        {options.load_all && !anew,
         "--load-all is for --load FILE.safetensors or a published folder, with which training "
         "begins"},
        {options.new_head && !anew,
         "--new-head is for --load FILE.safetensors or a published folder, with which training "
         "begins"},
        {!tuning.adapter.empty() && !anew,
         "--adapter is for --load FILE.safetensors or a published folder; a checkpoint has its own "
         "adapters"},
        {exports_adapter && tuning.adapters.layers.empty(),
         "--export-adapter needs adapters: choose their layers by --lora"},
        {exports_adapter && !saves,
         "--export-adapter takes the adapter of the last checkpoint: it needs --save DIR, too"},
        {!options.stop_early.empty() && elastic,
         "--stop-early does not work with --elastic: new ranks do not know the earlier "
         "evaluations"},
        {!options.keep_best.empty() && options.keep == 0,
         "--keep-best needs --keep: without it, all checkpoints are kept"}})
    dhp::check(!bad, sentence);
  dhp::check(options.stop_early.empty() || options.evaluate_every > 0, "--stop-early ",
             options.stop_early, " needs evaluations during the run: give --evaluate-every");
  dhp::check(options.keep_best.empty() ||
                 (options.evaluate_every > 0 && options.save_every % options.evaluate_every == 0),
             "--keep-best needs an evaluation before each save: --save-every ", options.save_every,
             " is no multiple of --evaluate-every ", options.evaluate_every);
  check_load(options.load);
  check_outputs({{"--metrics", options.metrics},
                 {"--trace", options.trace},
                 {"--trace-values", options.trace_values}});
  check_directory("--export", options.export_to, "--load", anew ? options.load : "");
  check_directory("--export-adapter", tuning.export_adapter, "--adapter", tuning.adapter);
}

/// Makes the optimizer, the reducer and the schedule; throws for errors that can be found without data.
void finish(const CLI::App& app, RunOptions& options, const Words& words) {
  finish_layout(options);
  finish_optimizer(options, words.optimizer);
  finish_reducer(app, options, words.reducer);
  options.finish_synthetic();
  options.check_context();
  if (options.steps.value_or(0) > 0) options.check_decay(*options.steps);
  check_together(options);
}

/// Returns whether an option belongs to a single reducer.
[[nodiscard]] bool is_of_reducer(const std::string& name) {
  return std::any_of(options_of_reducers.begin(), options_of_reducers.end(),
                     [&](const auto& each) { return name == each.first; });
}

using Saved = std::optional<std::pair<std::string, dhp::CheckpointIndex>>;

/// Finds the checkpoint that the run continues: that of --resume, else that of --load; nullopt if neither has one.
[[nodiscard]] Saved find_saved(CLI::App& app, RunOptions& options) {
  if (options.resume.empty()) return dhp::newest_checkpoint(options.load);
  if (options.save.empty()) set(app.get_option("--save"), {options.resume});
  auto saved = dhp::newest_checkpoint(options.resume);
  if (!saved) return dhp::newest_checkpoint(options.load);
  set(app.get_option("--load"), {options.resume});
  options.load_all = options.new_head = false;  // both apply at the start only
  options.tuning.adapter.clear();
  return saved;
}

/// Sets options that were not given to the values that --load's checkpoint remembers.
void recall(CLI::App& app, RunOptions& options, const Saved& saved) {
  if (saved) {
    const auto& about = saved->second.about;
    const auto state = dhp::detail::run_state_of(about, saved->first);
    options.from = {state.step, state.samples};
    const auto run = about.value("run", nlohmann::ordered_json::object());
    const auto before = run.value("options", nlohmann::ordered_json::object());
    const auto* const reducer = app.get_option("--reducer");
    const bool other_reducer =
        reducer->count() > 0 && (!before.contains("--reducer") ||
                                 nlohmann::ordered_json(reducer->results()) != before["--reducer"]);
    for (auto* option : options_of_the_run(app)) {
      const auto name = option->get_name();
      if (other_reducer && option->count() == 0 && is_of_reducer(name)) continue;
      const bool was_given = before.contains(name);
      const auto excluded = option->get_excludes();
      if (option->count() > 0) {
        const nlohmann::ordered_json now = option->results();
        if (was_given ? now != before[name] : true)
          options.differing.push_back(dhp::concat(
              name, " ", option->results().back(), "; in the checkpoint: ",
              was_given ? before[name].back().get<std::string>() : std::string("not given")));
      } else if (was_given && std::none_of(excluded.begin(), excluded.end(),
                                           [](auto* other) { return other->count() > 0; })) {
        set(option, before[name]);
      }
    }
  }
  nlohmann::ordered_json remembered = nlohmann::ordered_json::object();
  for (auto* option : options_of_the_run(app))
    if (option->count() > 0) try {
        remembered[option->get_name()] = option->results();
        options.remembered = remembered.dump();
      } catch (const nlohmann::json::type_error&) {
        dhp::fail("", option->get_name(),
                  ": the value is not UTF-8, so checkpoints cannot keep it; rename it");
      }
}

std::optional<int> parse(CommandLine& app, int argc, char** argv, auto& options, const Words& words,
                         auto check) {
  app.add_option_file("--config",
                      "TOML file of options without their dashes; the command line overrides it")
      ->group("Output");
  return app.read(argc, argv, [&] {
    const auto saved = find_saved(app, options.run);
    take_adapter(app, options.run);
    if constexpr (requires { options.stem_stride; }) take_shape(app, options.run);
    recall(app, options.run, saved);
    options.run.configuration = configuration_of(app);
    options.run.common = common_options(app);
    finish(app, options.run, words);
    note_idle(app, options.run, words.reducer.name);
    if constexpr (requires { options.sequence_parallel; }) check_axes(options);
    check();
  });
}

/// words must outlive the parsing.
void add_text_run_options(CommandLine& app, RunOptions& run, Words& words, bool gpu) {
  words = {.optimizer = {.name = "adamw", .weight_decay = 0.01}};
  run.trainer.learning_rate = {.peak = 1e-3, .decay = dhp::Decay::linear};
  run.trainer.clip = 1;
  add_run_options(app, run, words);
  add_device_options(app, run, gpu);
}

}  // namespace

std::string precision_name(dhp::DType precision) {
  for (const auto& [name, type] : precisions)
    if (type == precision) return std::string(name);
  return dhp::name_of(precision);
}

Parsed<BertOptions> parse_bert(int argc, char** argv, bool gpu, std::int64_t micro_batch) {
  Parsed<BertOptions> parsed;
  auto& options = parsed.options;
  options.run.micro_batch = micro_batch;
  CommandLine app("Pre-trains a BERT on text: masked tokens and next sentences.");
  app.footer(
      "Examples:\n"
      "  train_bert --data text/ --preset mini --epochs 3 --save run --save-every 500\n"
      "  train_bert --load run --save run                      goes on where it stopped\n"
      "  train_bert --data-parallel 2 --tensor-parallel 2 --pipeline-parallel 2 --steps 20\n"
      "  train_bert --config run/step-00000500/options.toml --save other --lr 0.0005\n");
  Words words;
  add_text_run_options(app, options.run, words, gpu);
  options.dropout = 0.1;
  add_text_model_options(
      app, options,
      {.presets = dhp::detail::choice_of(bert_presets()),
       .vocabulary = "Vocabulary, a vocab.txt",
       .longest = 512,
       .columns = "; with --task classify two for pairs of sentences: premise,hypothesis",
       .task = " (with --task classify)"});
  add_bert_options(app, options);
  parsed.exit_status = parse(app, argc, argv, options, words, [&] {
    options.run.exchange_heads |= gpu;  // always on GPUs; the memory plan sees only this option
    check_classification(app, options);
  });
  return parsed;
}

Parsed<TextModelOptions> parse_gpt(int argc, char** argv, bool gpu, std::int64_t micro_batch) {
  Parsed<TextModelOptions> parsed;
  auto& options = parsed.options;
  options.run.micro_batch = micro_batch;
  CommandLine app("Trains a causal decoder of GPT-2's or Llama's shape on text.");
  app.footer(
      "Examples:\n"
      "  train_gpt --data text/ --preset mini --epochs 3 --save run --export model\n"
      "  train_gpt --load run --save run                       goes on where it stopped\n"
      "  train_gpt --preset llama-tiny --tensor-parallel 2 --steps 20\n"
      "  train_gpt --load gpt2 --data text/ --lora c_attn.query,c_attn.value --lr 0.0003\n");
  Words words;
  add_text_run_options(app, options.run, words, gpu);
  add_text_model_options(app, options,
                         {.presets = dhp::detail::choice_of(gpt_presets()),
                          .vocabulary = "Vocabulary, a tokenizer.json",
                          .longest = 1 << 17});
  parsed.exit_status = parse(app, argc, argv, options, words, [&] {
    options.run.exchange_heads |= gpu;
    dhp::check(options.text_columns.size() < 2, "--text-column: give one column");
    dhp::check(!options.run.new_head, "--new-head: a decoder has no head to replace");
  });
  return parsed;
}

Parsed<ResNetOptions> parse_resnet(int argc, char** argv, bool gpu, std::int64_t micro_batch) {
  Parsed<ResNetOptions> parsed;
  auto& options = parsed.options;
  options.run.micro_batch = micro_batch;
  Words words{.optimizer = {.name = "sgd", .weight_decay = 1e-4}};
  options.run.trainer.learning_rate = {.peak = 0.1, .decay = dhp::Decay::linear};
  CommandLine app("Trains a ResNet to classify images.");
  app.footer(
      "Examples:\n"
      "  train_resnet50 --data images/ --augment --epochs 90 --save run --save-every 500\n"
      "  train_resnet50 --load run --save run                  goes on where it stopped\n"
      "  train_resnet50 --data-parallel 4 --zero 1 --image-size 32 --steps 20\n"
      "  train_resnet50 --load weights.safetensors --new-head --data other/ --lr 0.01\n");
  add_run_options(app, options.run, words);
  add_device_options(app, options.run, gpu);
  add_resnet_options(app, options);
  parsed.exit_status = parse(app, argc, argv, options, words, [&] {
    dhp::check(
        !options.sync_batch_norm || words.reducer.name != "local",
        "--sync-batch-norm does not work with --reducer local, with which replicas step alone");
    // --image-size 0 stands for more than 64 if the data have no size of their own.
    dhp::check(options.stem_stride == 1 || options.image_size <= 64, "--stem-stride ",
               options.stem_stride, " is only for images up to 64 pixels, not for ",
               options.image_size);
    dhp::check(
        !options.sync_batch_norm || options.run.axes == "auto" ||
            options.run.global_batch / options.run.micro_batch % options.run.layout.data == 0,
        "--sync-batch-norm needs the same number of micro-batches on every replica: "
        "--global-batch / --micro-batch must be a multiple of --data-parallel ",
        options.run.layout.data);
  });
  return parsed;
}

}  // namespace examples
