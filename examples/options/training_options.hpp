// Options of the optimizer, and of the reducer: how gradients are summed over replicas, or sharded (ZeRO).
#pragma once

#include "command_line.hpp"

#include <array>
#include <map>
#include <string>
#include <utility>

namespace examples {

/// Option values. The optimizer is made from them once the whole command line is known.
struct OptimizerWords {
  std::string name;
  double momentum = 0.9;
  bool nesterov = false;
  double weight_decay = 0;

  [[nodiscard]] std::map<std::string, dhp::OptimizerChoice> choices() const {
    return {
        {"sgd",
         dhp::SgdOptions{.momentum = momentum, .nesterov = nesterov, .weight_decay = weight_decay}},
        {"lars", dhp::LarsOptions{.momentum = momentum, .weight_decay = weight_decay}},
        {"adamw", dhp::AdamWOptions{.weight_decay = weight_decay}},
        {"lamb", dhp::LambOptions{.weight_decay = weight_decay}}};
  }
};

inline void add_optimizer_options(CommandLine& app, RunOptions& options, OptimizerWords& words) {
  const auto not_negative = not_negative_number();
  app.option_defaults()->group("Optimizer");
  app.add_option("--optimizer", words.name, "Update rule of the weights",
                 CLI::IsMember(words.choices()));
  app.add_option("--lr", options.trainer.learning_rate.peak, "Peak learning rate",
                 number_up_to(1e6));
  app.add_option("--momentum", words.momentum, "Momentum of sgd and lars", number_up_to(1));
  app.add_flag("--nesterov", words.nesterov, "Nesterov's form of the momentum, for sgd");
  app.add_option("--warmup", options.trainer.learning_rate.warmup_steps, "Steps of linear warm-up",
                 not_negative);
  add_name(app, "--lr-decay", "linear",
           "Decay after the warm-up: " + dhp::detail::choice_of(dhp::detail::decays),
           [&](const auto& name) { options.trainer.learning_rate.decay = dhp::parse_decay(name); });
  app.add_option("--weight-decay", words.weight_decay, "Weight decay, except for biases and norms",
                 number_up_to(1e6));
  app.add_option("--clip", options.trainer.clip, "Largest global gradient norm; 0: no clipping",
                 not_negative);
  app.add_option("--skip-spikes", options.trainer.spike,
                 "Skip steps whose gradient norm exceeds this many times the usual; 0: none",
                 not_negative);
}

inline void finish_optimizer(RunOptions& options, const OptimizerWords& words) {
  dhp::check(!words.nesterov || words.name == "sgd", "--nesterov is for --optimizer sgd, not ",
             words.name);
  options.optimizer = words.choices().at(words.name);
}

/// Option values. The reducer is made from them once the whole command line is known.
struct ReducerWords {
  std::string name = "bucketed";
  double bucket_mb = 25;
  int zero = 0;
  int shard_redundancy = 0;
  dhp::TopK top_k{};
  dhp::PowerSgd power_sgd{};
  dhp::Delayed delayed{};
  dhp::LocalSgd local{};

  [[nodiscard]] std::size_t bucket_bytes() const {
    return static_cast<std::size_t>(bucket_mb * 1048576);
  }
  [[nodiscard]] std::map<std::string, dhp::ReducerChoice> choices() const {
    return {{"plain", dhp::Plain{}},       {"bucketed", dhp::Bucketed{.bytes = bucket_bytes()}},
            {"16-bit", dhp::SixteenBit{}}, {"top-k", top_k},
            {"powersgd", power_sgd},       {"one-bit", dhp::OneBit{}},
            {"delayed", delayed},          {"local", local}};
  }
};

/// Options that belong to a single reducer, with its name.
inline constexpr std::array<std::pair<const char*, const char*>, 6> options_of_reducers{
    {{"--reducer-rank", "powersgd"},
     {"--reducer-share", "top-k"},
     {"--reducer-delay", "delayed"},
     {"--local-steps", "local"},
     {"--outer-lr", "local"},
     {"--outer-momentum", "local"}}};

inline void add_reducer_options(CommandLine& app, ReducerWords& words) {
  app.option_defaults()->group("Training");
  app.add_option("--reducer", words.name,
                 "Sum of gradients over replicas: plain or bucketed; compressed: 16-bit, top-k, "
                 "powersgd or one-bit; late: delayed or local",
                 CLI::IsMember(words.choices()));
  app.add_option("--reducer-rank", words.power_sgd.rank, "Columns of the factors of powersgd",
                 number_from_to(1, 1000));
  app.add_option("--reducer-share", words.top_k.share,
                 "Share of a matrix's elements that top-k sends", number_up_to(1));
  app.add_option("--reducer-delay", words.delayed.steps,
                 "With delayed: steps from a step's gradients to their use", number_up_to(1000));
  app.add_option("--local-steps", words.local.every,
                 "With local: steps between averages of the weights", positive_number());
  app.add_option("--outer-lr", words.local.outer_learning_rate,
                 "With local: learning rate of the step towards the average",
                 number_from_to(1e-6, 1e6));
  app.add_option("--outer-momentum", words.local.outer_momentum,
                 "With local: Nesterov momentum of the step towards the average",
                 number_up_to(0.999));
  app.option_defaults()->group("Layout");
  app.add_option("--zero", words.zero,
                 "Replicas shard: 0 nothing, 1 optimizer state, 2 also gradients, 3 also weights",
                 CLI::Range(0, 3));
  app.add_option("--shard-redundancy", words.shard_redundancy,
                 "With --zero: other replicas whose shares each replica also holds, for --elastic",
                 number_up_to(1000));
  app.add_option("--bucket-mb", words.bucket_mb,
                 "Minimum size of a bucket, in MiB; with --zero 2 and 3 a 32nd of the gradients, "
                 "if that is less",
                 number_from_to(1e-6, 1e6));
}

/// Throws if the reducer lets replicas step alone or with late gradients, and other options do not allow this.
inline void check_late_reducer(const RunOptions& options, const ReducerWords& words) {
  const bool delayed = words.name == "delayed", local = words.name == "local";
  if (!delayed && !local) return;
  dhp::check(!options.store.deterministic,
             "--deterministic sums the gradients of a step exactly in that step, but --reducer ",
             words.name, " does not");
  dhp::check(!options.elastic,
             "--elastic needs replicas that take each step together, but with --reducer ",
             words.name, " they do not");
  dhp::check(!options.cuda_graphs.value_or(false),
             "--cuda-graphs repeats one step, and with --reducer ", words.name, " steps differ");
  dhp::check(options.store.compute != dhp::DType::f16 &&
                 (delayed || options.store.compute != dhp::DType::bf16),
             "--reducer ", words.name, " is for --precision fp32", delayed ? ", bf16" : "",
             " or fp64: ",
             delayed ? "the loss scale of fp16 may change before a gradient is used"
                     : "the optimizer does not step on the 16-bit weights, but on copies in fp32");
  dhp::check(delayed || options.axes == "auto" ||
                 options.global_batch / options.micro_batch >= options.layout.data,
             "--reducer local needs a micro-batch for each replica: --global-batch / --micro-batch "
             "must be at least --data-parallel ",
             options.layout.data);
}

/// Makes the reducer and the sharding; throws if they do not fit the other options.
inline void finish_reducer(const CLI::App& app, RunOptions& options, const ReducerWords& words) {
  options.reducer = words.choices().at(words.name);
  options.reducer_name = words.name;
  for (const auto& [name, reducer] : options_of_reducers)
    dhp::check(words.name == reducer || app.get_option(name)->count() == 0, name,
               " is for --reducer ", reducer);
  check_late_reducer(options, words);
  dhp::check(words.top_k.share > 0,
             "--reducer-share 0 would send nothing; choose a number above 0, up to 1");
  dhp::check(options.sums_all() || !options.store.deterministic,
             "--deterministic sums gradients as integers, which --reducer ", words.name,
             " cannot send; choose plain or bucketed");
  dhp::check(options.sums_all() || !options.elastic, "--elastic would lose what --reducer ",
             words.name, " has not sent yet; choose plain or bucketed");
  options.store.sharding = {static_cast<dhp::ZeroStage>(words.zero), words.bucket_bytes(),
                            words.shard_redundancy};
  dhp::check(words.shard_redundancy == 0 || words.zero > 0,
             "--shard-redundancy needs --zero; without it each replica has all state");
  dhp::check(words.zero == 0 || words.name == "bucketed",
             "--zero shards buckets of gradients, but --reducer ", words.name,
             " has none; choose bucketed");
  dhp::check(words.zero == 0 || !options.cuda_graphs.value_or(false),
             "--zero moves shares of weights between steps, which --cuda-graphs cannot record");
}

}  // namespace examples
