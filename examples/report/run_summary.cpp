#include "run_summary.hpp"

#include <algorithm>

namespace examples {
namespace {

[[nodiscard]] std::string seconds_text(double seconds) {
  return seconds < 100 ? short_number(seconds) + " s" : duration_text(seconds);
}
/// Formats a number, such as "12.34 T" for 1.234e13.
[[nodiscard]] std::string scaled(double value) {
  for (const auto& [unit, name] :
       {std::pair{1e18, "E"}, {1e15, "P"}, {1e12, "T"}, {1e9, "G"}, {1e6, "M"}})
    if (value >= unit) return short_number(value / unit) + " " + name;
  return short_number(value) + " ";
}
/// Returns a part's name as a field of the metrics.
[[nodiscard]] std::string field_name(std::string name) {
  for (auto& letter : name)
    if (letter == ' ') letter = '_';
  return name + "_s";
}

}  // namespace

std::vector<std::string> RunSummary::lines() const {
  if (last_step <= steps_before) return {};
  std::vector<std::string> result;
  std::size_t width = 24;
  for (const auto& value : values) width = std::max(width, value.name.size() + 2);
  const auto line = [&](const std::string& name, const std::string& text) {
    result.push_back("  " + name + std::string(width - name.size(), ' ') + text);
  };
  result.push_back(dhp::concat("summary of steps ", steps_before + 1, " to ", last_step, " on ",
                               dhp::detail::pluralize(ranks, "rank"), ":"));
  auto training_first = values;
  std::stable_partition(training_first.begin(), training_first.end(),
                        [](const BestValue& value) { return value.name == "loss"; });
  for (const auto& value : training_first)
    if (value.times == 1 || !value.stays)
      line(value.name, dhp::concat("last ", short_number(value.last), ", best ",
                                   short_number(value.best), " after step ", value.best_step));
  line("speed", short_number(samples / steps_s()) + " samples/s" +
                    (tokens > 0 ? ", " + short_number(tokens / steps_s()) + " tokens/s" : ""));
  if (forward_flop > 0) {
    line("model", scaled(flop_per_step()) + "FLOP a step, " + scaled(tflops_of_rank() * 1e12) +
                      "FLOP/s a rank");
    if (peak_tflops > 0)
      line("model FLOP utilization", short_number(100 * utilization()) + " % of " +
                                         short_number(peak_tflops) + " TFLOP/s a rank");
  }
  line("wall time", seconds_text(wall_s()) + " of a rank:");
  for (std::size_t part = 0; part < seconds.size(); ++part) {
    const bool waits = part == 1 || part == 2;
    if (waits && (ranks == 1 || !sees_waits)) continue;
    char text[96];
    std::snprintf(text, sizeof text, "%5.1f %%  %s", 100 * seconds[part] / wall_s(),
                  seconds_text(seconds[part]).c_str());
    const char* note = part == 0 && ranks > 1 && !sees_waits ? ", waits for other ranks included"
                       : part == 1                           ? " exposed"
                       : part == 2                           ? " waiting for messages"
                                                             : "";
    line(std::string("  ") + part_names[part], std::string(text) + note);
  }
  if (energy_j > 0)
    line("energy of the GPUs", short_number(energy_j / 3.6e6) + " kWh, " +
                                   short_number(energy_j / samples) + " J a sample");
  return result;
}

std::vector<std::pair<std::string, double>> RunSummary::fields() const {
  std::vector<std::pair<std::string, double>> result;
  const auto add = [&](const std::string& name, double value) { result.emplace_back(name, value); };
  add("first_step", static_cast<double>(steps_before + 1));
  add("ranks", ranks);
  add("wall_s", wall_s());
  for (std::size_t part = 0; part < seconds.size(); ++part)
    add(field_name(part_names[part]), seconds[part]);
  add("samples_per_s", samples / steps_s());
  if (tokens > 0) add("tokens_per_s", tokens / steps_s());
  if (forward_flop > 0) {
    add("model_flop_per_step", flop_per_step());
    add("model_flop_per_s_of_rank", tflops_of_rank() * 1e12);
    if (peak_tflops > 0) add("model_flop_utilization", utilization());
  }
  if (energy_j > 0) add("energy_j", energy_j);
  for (const auto& value : values) {
    add("last_" + value.name, value.last);
    add("best_" + value.name, value.best);
    add("best_" + value.name + "_step", static_cast<double>(value.best_step));
  }
  return result;
}

}  // namespace examples
