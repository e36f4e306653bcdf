// Options of the optimizer.
#pragma once

#include "command_line.hpp"

#include <map>
#include <string>

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
  app.add_option("--lr", options.learning_rate.peak, "Peak learning rate", number_up_to(1e6));
  app.add_option("--momentum", words.momentum, "Momentum of sgd and lars", number_up_to(1));
  app.add_flag("--nesterov", words.nesterov, "Nesterov's form of the momentum, for sgd");
  app.add_option("--warmup", options.learning_rate.warmup_steps, "Steps of linear warm-up",
                 not_negative);
  add_name(app, "--lr-decay", "linear",
           "Decay after the warm-up: constant, linear, cosine, polynomial or step",
           [&](const auto& name) { options.learning_rate.decay = dhp::parse_decay(name); });
  app.add_option("--weight-decay", words.weight_decay, "Weight decay, except for biases and norms",
                 number_up_to(1e6));
  app.add_option("--clip", options.clip, "Largest global gradient norm; 0: no clipping",
                 not_negative);
  app.add_option("--skip-spikes", options.skip_spikes,
                 "Skip steps whose gradient norm exceeds this many times the usual; 0: none",
                 not_negative);
}

inline void finish_optimizer(RunOptions& options, const OptimizerWords& words) {
  dhp::check(!words.nesterov || words.name == "sgd", "--nesterov is for --optimizer sgd, not ",
             words.name);
  options.optimizer = words.choices().at(words.name);
}

}  // namespace examples
