// Options of the reducer: how gradients are summed over replicas, or shared out (ZeRO).
#pragma once

#include "command_line.hpp"

#include <array>
#include <string>
#include <vector>

namespace examples {

/// What the reducer is made of once all of the command line is known.
struct ReducerWords {
  std::string name = "bucketed";
  double bucket_mb = 25;
  int zero = 0;
  int shard_copies = 0;
  int delay = 1;
  dhp::LocalSgd local{};
  [[nodiscard]] std::size_t bucket_bytes() const {
    return static_cast<std::size_t>(bucket_mb * 1048576);
  }
};

/// A value of --reducer.
struct ReducerKind {
  const char* name;
  dhp::ReducerChoice (*make)(const ReducerWords&);
};
inline constexpr std::array reducer_kinds{
    ReducerKind{"plain", [](const auto&) -> dhp::ReducerChoice { return dhp::Plain{}; }},
    ReducerKind{"bucketed",
                [](const auto& words) -> dhp::ReducerChoice {
                  return dhp::Bucketed{.bytes = words.bucket_bytes()};
                }},
    ReducerKind{
        "delayed",
        [](const auto& words) -> dhp::ReducerChoice { return dhp::Delayed{.steps = words.delay}; }},
    ReducerKind{"local", [](const auto& words) -> dhp::ReducerChoice { return words.local; }},
};

inline void add_reducer_options(CLI::App& app, ReducerWords& words) {
  std::vector<std::string> names;
  for (const auto& kind : reducer_kinds) names.emplace_back(kind.name);
  app.add_option("--reducer", words.name,
                 "How gradients are summed over replicas: plain, bucketed or delayed; or local: "
                 "replicas step alone and average their weights")
      ->check(CLI::IsMember(names))
      ->group("Layout");
  app.add_option("--reducer-delay", words.delay,
                 "With --reducer delayed: steps from a step's gradients to their use")
      ->check(not_negative_number())
      ->group("Layout");
  app.add_option("--local-steps", words.local.every,
                 "With --reducer local: steps from one average of the weights to the next")
      ->check(positive_number())
      ->group("Layout");
  app.add_option("--outer-lr", words.local.outer_learning_rate,
                 "With --reducer local: learning rate of a step towards the average (DiLoCo)")
      ->check(positive_number())
      ->group("Layout");
  app.add_option("--outer-momentum", words.local.outer_momentum,
                 "With --reducer local: Nesterov's momentum of that step")
      ->check(number_up_to(0.999))
      ->group("Layout");
  app.add_option(
         "--zero", words.zero,
         "What replicas share out: 1 optimizer state, 2 gradients too, 3 weights too; 0: nothing")
      ->check(CLI::Range(0, 3))
      ->group("Layout");
  app.add_option("--shard-copies", words.shard_copies,
                 "With --zero: each replica also holds the shares of so many others, for --elastic")
      ->check(not_negative_number())
      ->group("Layout");
  app.add_option("--bucket-mb", words.bucket_mb, "Least size of a bucket, in MiB")
      ->check(positive_number())
      ->group("Layout");
}

/// Throws where replicas do not take each step together, and the other options need that.
inline void check_late_reducer(const RunOptions& options, const ReducerWords& words) {
  const bool delayed = words.name == "delayed", local = words.name == "local";
  dhp::check(delayed || words.delay == ReducerWords{}.delay,
             "--reducer-delay is for --reducer delayed, not ", words.name);
  const dhp::LocalSgd usual;
  for (const auto& [given, name] :
       {std::pair{words.local.every != usual.every, "--local-steps"},
        {words.local.outer_learning_rate != usual.outer_learning_rate, "--outer-lr"},
        {words.local.outer_momentum != usual.outer_momentum, "--outer-momentum"}})
    dhp::check(local || !given, name, " is for --reducer local, not ", words.name);
  if (!delayed && !local) return;
  dhp::check(!options.deterministic,
             "--deterministic sums the gradients of a step exactly in that step, "
             "and --reducer ",
             words.name, " does not");
  dhp::check(!options.elastic,
             "--elastic needs replicas that take each step together, and with --reducer ",
             words.name, " they do not");
  dhp::check(!options.cuda_graphs.value_or(false),
             "--cuda-graphs repeats one step, and with --reducer ", words.name, " steps differ");
  dhp::check(
      options.precision != dhp::DType::f16 && (delayed || options.precision != dhp::DType::bf16),
      "--reducer ", words.name, " is for --precision fp32", delayed ? ", bf16" : "", " or fp64: ",
      delayed ? "the loss scale of fp16 may change before a gradient is used"
              : "the weights of 16 bits are not those that the optimizer steps on");
  dhp::check(
      delayed || options.global_batch / options.micro_batch >= options.mesh.data,
      "--reducer local needs a micro-batch for each replica: --global-batch / --micro-batch must "
      "be at least --data-parallel ",
      options.mesh.data);
}

/// Makes the reducer and the sharding; throws where they do not fit the other options.
inline void finish_reducer(RunOptions& options, const ReducerWords& words) {
  for (const auto& kind : reducer_kinds)
    if (words.name == kind.name) options.reducer = kind.make(words);
  check_late_reducer(options, words);
  options.sharding = {static_cast<dhp::ZeroStage>(words.zero), words.bucket_bytes(),
                      words.shard_copies};
  dhp::check(words.shard_copies == 0 || words.zero > 0,
             "--shard-copies is for shares of state, and without --zero each replica has it all");
  dhp::check(words.zero == 0 || words.name == "bucketed",
             "--zero shares out buckets of gradients, and --reducer ", words.name, " has none");
  dhp::check(words.zero == 0 || !options.cuda_graphs.value_or(false),
             "--zero moves shares of weights between steps, which --cuda-graphs cannot record");
}

}  // namespace examples
