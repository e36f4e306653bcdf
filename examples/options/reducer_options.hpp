// Options of the reducer: how gradients are summed over replicas, or sharded (ZeRO).
#pragma once

#include "command_line.hpp"

#include <optional>
#include <string>

namespace examples {

/// Words to make the reducer of once all of the command line is known.
struct ReducerWords {
  std::string name = "bucketed";
  double bucket_mb = 25;
  int zero = 0;
  int shard_redundancy = 0;
  std::optional<int> rank{};
  std::optional<double> share{};
  std::optional<int> delay{}, local_steps{};
  std::optional<double> outer_rate{}, outer_momentum{};
  [[nodiscard]] std::size_t bucket_bytes() const {
    return static_cast<std::size_t>(bucket_mb * 1048576);
  }
};

[[nodiscard]] inline dhp::ReducerChoice reducer_of(const ReducerWords& words) {
  const dhp::LocalSgd usual;
  if (words.name == "plain") return dhp::Plain{};
  if (words.name == "16-bit") return dhp::SixteenBit{};
  if (words.name == "top-k") return dhp::TopK{.share = words.share.value_or(dhp::TopK{}.share)};
  if (words.name == "powersgd")
    return dhp::PowerSgd{.rank = words.rank.value_or(dhp::PowerSgd{}.rank)};
  if (words.name == "one-bit") return dhp::OneBit{};
  if (words.name == "delayed")
    return dhp::Delayed{.steps = words.delay.value_or(dhp::Delayed{}.steps)};
  if (words.name == "local")
    return dhp::LocalSgd{
        .every = words.local_steps.value_or(usual.every),
        .outer_learning_rate = words.outer_rate.value_or(usual.outer_learning_rate),
        .outer_momentum = words.outer_momentum.value_or(usual.outer_momentum)};
  return dhp::Bucketed{.bytes = words.bucket_bytes()};
}

inline void add_reducer_options(CommandLine& app, ReducerWords& words) {
  app.option_defaults()->group("Training");
  app.add_option("--reducer", words.name,
                 "How gradients are summed over replicas: plain, bucketed, or compressed: 16-bit, "
                 "top-k, powersgd, one-bit; or late: delayed, local",
                 CLI::IsMember({"plain", "bucketed", "16-bit", "top-k", "powersgd", "one-bit",
                                "delayed", "local"}));
  app.add_option("--reducer-rank", words.rank, "Of powersgd: columns of its factors (default: 4)",
                 number_from_to(1, 1000));
  app.add_option("--reducer-share", words.share,
                 "Of top-k: elements that are sent, of all of a matrix (default: 0.01)",
                 number_up_to(1));
  app.add_option("--reducer-delay", words.delay,
                 "Of delayed: steps from a step's gradients to their use (default: 1)",
                 number_up_to(1000));
  app.add_option("--local-steps", words.local_steps,
                 "Of local: steps from one average of the weights to the next (default: 8)",
                 positive_number());
  app.add_option("--outer-lr", words.outer_rate,
                 "Of local: learning rate of a step towards the average (default: 1)",
                 number_from_to(1e-6, 1e6));
  app.add_option("--outer-momentum", words.outer_momentum,
                 "Of local: Nesterov's momentum of that step (default: 0)", number_up_to(0.999));
  app.option_defaults()->group("Layout");
  app.add_option(
      "--zero", words.zero,
      "What replicas shard: 1 optimizer state, 2 gradients too, 3 weights too; 0: nothing",
      CLI::Range(0, 3));
  app.add_option("--shard-redundancy", words.shard_redundancy,
                 "With --zero: each replica also holds the shares of so many others, for --elastic",
                 number_up_to(1000));
  app.add_option(
      "--bucket-mb", words.bucket_mb,
      "Least size of a bucket, in MiB; with --zero 2 and 3 a 32nd of the gradients is enough, too",
      number_from_to(1e-6, 1e6));
}

/// Throws where replicas do not take each step together, and the other options need that.
inline void check_late_reducer(const RunOptions& options, const ReducerWords& words) {
  const bool delayed = words.name == "delayed", local = words.name == "local";
  dhp::check(delayed || !words.delay, "--reducer-delay is for --reducer delayed");
  for (const auto& [given, name] : {std::pair{words.local_steps.has_value(), "--local-steps"},
                                    {words.outer_rate.has_value(), "--outer-lr"},
                                    {words.outer_momentum.has_value(), "--outer-momentum"}})
    dhp::check(local || !given, name, " is for --reducer local");
  if (!delayed && !local) return;
  dhp::check(!options.deterministic,
             "--deterministic sums the gradients of a step exactly in that step, and --reducer ",
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
  dhp::check(delayed || options.axes == "auto" ||
                 options.global_batch / options.micro_batch >= options.mesh.data,
             "--reducer local needs a micro-batch for each replica: --global-batch / --micro-batch "
             "must be at least --data-parallel ",
             options.mesh.data);
}

/// Makes the reducer and the sharding; throws where they do not fit the other options.
inline void finish_reducer(RunOptions& options, const ReducerWords& words) {
  options.reducer = reducer_of(words);
  options.reducer_name = words.name;
  check_late_reducer(options, words);
  dhp::check(!words.rank || words.name == "powersgd", "--reducer-rank is for --reducer powersgd");
  dhp::check(!words.share || words.name == "top-k", "--reducer-share is for --reducer top-k");
  dhp::check(words.share.value_or(1) > 0,
             "--reducer-share 0 would send nothing; choose a number above 0, up to 1");
  dhp::check(options.sums_all() || !options.deterministic,
             "--deterministic sums gradients as integers, which --reducer ", words.name,
             " cannot send; choose plain or bucketed");
  dhp::check(options.sums_all() || !options.elastic, "--elastic does not carry what --reducer ",
             words.name, " has not sent yet to other ranks; choose plain or bucketed");
  options.sharding = {static_cast<dhp::ZeroStage>(words.zero), words.bucket_bytes(),
                      words.shard_redundancy};
  dhp::check(
      words.shard_redundancy == 0 || words.zero > 0,
      "--shard-redundancy is for shares of state, and without --zero each replica has it all");
  dhp::check(words.zero == 0 || words.name == "bucketed",
             "--zero shards buckets of gradients, and --reducer ", words.name, " has none");
  dhp::check(words.zero == 0 || !options.cuda_graphs.value_or(false),
             "--zero moves shares of weights between steps, which --cuda-graphs cannot record");
}

}  // namespace examples
