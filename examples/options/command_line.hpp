// Options that several programs share: the layout, the device, and which rank a process is.
#pragma once

#include "checked_options.hpp"
#include "options.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace examples {

/// Adds a flag and its opposite. Without either, `choice` stays empty; add_flag would set it.
inline CLI::Option* add_choice(CommandLine& app, const std::string& flags,
                               std::optional<bool>& choice, const std::string& help) {
  return app.add_flag_function(
      flags, [&choice](std::int64_t count) { choice = count > 0; }, help);
}

/// Adds an option whose value is a name; turn(name) stores the value with this name, and throws for an unknown name.
inline CLI::Option* add_name(CLI::App& app, const std::string& flag, const std::string& usual,
                             const std::string& help, auto turn) {
  return app.add_option_function<std::string>(flag, turn, help)->default_str(usual);
}

inline constexpr std::pair<std::string_view, dhp::DType> precisions[] = {{"fp32", dhp::DType::f32},
                                                                         {"bf16", dhp::DType::bf16},
                                                                         {"fp16", dhp::DType::f16},
                                                                         {"fp64", dhp::DType::f64}};
inline void add_precision(CommandLine& app, RunOptions& options) {
  add_name(app, "--precision", "fp32", "Number type: " + dhp::detail::choice_of(precisions),
           [&](const auto& name) {
             options.store.compute = dhp::detail::find_named(precisions, name, "--precision");
           });
}

/// Replaces the values of an option.
inline void set(CLI::Option* option, const std::vector<std::string>& values) {
  option->clear();
  for (const auto& value : values) option->add_result(value);
  option->run_callback();
}

inline constexpr int max_threads = 1024;

/// Adds the option for a rank's GPU, or for its number of threads.
inline CLI::Option* add_device_option(CommandLine& app, RunOptions& options, bool gpu) {
  if (!gpu)
    return app.add_option("--threads", options.threads, "CPU threads per rank inside its ops",
                          number_from_to(1, max_threads));
  return app.add_option("--device", options.device,
                        "GPU of the first rank of this process; its other ranks take the next ones",
                        not_negative_number());
}

inline void add_mesh_options(CommandLine& app, RunOptions& options) {
  app.option_defaults()->group("Layout");
  app.add_option("--data-parallel", options.layout.data, "Replicas of the model",
                 positive_number());
  app.add_option("--tensor-parallel", options.layout.tensor, "Ranks over which each layer is split",
                 positive_number());
  app.add_option("--pipeline-parallel", options.layout.pipeline, "Stages of the pipeline",
                 positive_number());
}

inline void add_process_options(CommandLine& app, RunOptions& options) {
  app.option_defaults()->group("Processes");
  auto* const rank =
      app.add_option("--rank", options.rank_flags.rank,
                     "Rank of this process among --world-size; replaces a launcher's variables");
  auto* const size = app.add_option("--world-size", options.rank_flags.size, "Number of processes");
  rank->needs(size);
  size->needs(rank);
  app.add_option("--local-rank", options.rank_flags.local_rank, "Rank within this machine");
  app.add_option("--master", options.rank_flags.master,
                 "Address of rank 0: HOST, HOST:PORT or [ADDRESS]:PORT");
  app.add_option("--network-interface", options.network_interface,
                 "Interface at which this process listens (default: the one that leads to rank 0)");
  app.add_option(
      "--transport", options.transport,
      "Transport between processes on CPUs; automatic: MPI under an MPI launcher, else Gloo",
      CLI::IsMember({"automatic", "mpi", "gloo"}));
}

}  // namespace examples
