// What several programs have in common on their command lines, for CLI11: numbers, and which rank a process is.
#pragma once

#include <dhp/core/text.hpp>

#include "options.hpp"

#include <CLI/CLI.hpp>

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>

namespace examples {

// CLI11's own checks of this kind tell the largest double, in 309 digits, and let NaN pass.
template <class Right>
[[nodiscard]] CLI::Validator number_that(Right right, const std::string& name,
                                         const std::string& wanted) {
  return CLI::Validator(
      [=](std::string& text) {
        char* end = nullptr;
        const double value = std::strtod(text.c_str(), &end);
        const bool whole = !text.empty() && end == text.c_str() + text.size();
        return whole && right(value) ? std::string() : dhp::concat(text, " is not ", wanted);
      },
      name);
}
[[nodiscard]] inline CLI::Validator positive_number() {
  return number_that([](double value) { return value > 0; }, "POSITIVE", "a number above 0");
}
[[nodiscard]] inline CLI::Validator not_negative_number() {
  return number_that([](double value) { return value >= 0; }, "NONNEGATIVE",
                     "a number of 0 or more");
}
[[nodiscard]] inline CLI::Validator number_up_to(double most) {
  const auto range = dhp::concat("from 0 to ", most);
  return number_that([=](double value) { return value >= 0 && value <= most; }, range,
                     "a number " + range);
}

/// A flag and its opposite, or neither. CLI11 takes an optional for a count, and sets it to 0.
inline CLI::Option* add_choice(CLI::App& app, const std::string& flags, std::optional<bool>& choice,
                               const std::string& help) {
  return app.add_flag_function(
      flags, [&choice](std::int64_t count) { choice = count > 0; }, help);
}

/// Which GPU a rank has, or how many threads.
inline CLI::Option* add_device_option(CLI::App& app, RunOptions& options, bool gpu) {
  if (!gpu)
    return app.add_option("--threads", options.threads, "Threads per rank inside its ops (CPU)")
        ->check(positive_number());
  return app
      .add_option("--device", options.device,
                  "First GPU of this process; further ranks of it take the next ones")
      ->check(not_negative_number());
}

inline void add_mesh_options(CLI::App& app, RunOptions& options) {
  app.add_option("--data-parallel", options.mesh.data, "Replicas of the model")
      ->check(positive_number())
      ->group("Layout");
  app.add_option("--tensor-parallel", options.mesh.tensor, "Ranks that share each layer")
      ->check(positive_number())
      ->group("Layout");
  app.add_option("--pipeline-parallel", options.mesh.pipeline, "Stages of the pipeline")
      ->check(positive_number())
      ->group("Layout");
}

inline void add_process_options(CLI::App& app, RunOptions& options) {
  app.add_option("--rank", options.rank_flags.rank,
                 "This process is that rank of --world-size; a launcher's variables say the same")
      ->group("Processes");
  app.add_option("--world-size", options.rank_flags.size, "Processes, one for each rank")
      ->group("Processes");
  app.add_option("--local-rank", options.rank_flags.local_rank, "Among the ranks of this machine")
      ->group("Processes");
  app.add_option("--master", options.rank_flags.master,
                 "Where rank 0 is: HOST, HOST:PORT or [ADDRESS]:PORT")
      ->group("Processes");
  app.add_option("--network-interface", options.network_interface,
                 "Where this process listens for others; by default what leads to rank 0")
      ->group("Processes");
  app.add_option(
         "--transport", options.transport,
         "What carries processes on CPUs; automatic is MPI where an MPI launcher has started "
         "them, else Gloo")
      ->check(CLI::IsMember({"automatic", "mpi", "gloo"}))
      ->group("Processes");
}

}  // namespace examples
