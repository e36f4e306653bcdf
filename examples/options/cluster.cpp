// Reads a cluster's file as a file of options. All of them must be there, except device.tflops_bf16.
#include "../plan/cluster.hpp"

#include "checked_options.hpp"

#include <cmath>
#include <sstream>

namespace examples {

Cluster Cluster::parse(const std::string& text, const std::string& path) {
  Cluster result{.name = path};
  CommandLine app("");
  app.CLI::App::add_option("--file")->configurable(false)->add_result(path);
  app.add_option("--name", result.name, "");
  const std::string same_as_16 = "device.tflops_bf16";  // as tflops_16, unless the file has it
  const auto is_count = [](const std::string& key) {
    return key == "host.devices" || key == "host.in_a_rack";
  };
  visit(result, [&](const std::string& key, double& value, double) {
    const bool may_be_zero = key == "host.cores" || key == same_as_16 ||
                             key == "device.dollars_per_hour" || key.ends_with("us");
    const double least = is_count(key) ? 1 : may_be_zero ? 0 : 1e-9;
    app.add_option("--" + key, value, "", number_from_to(least, 1e15));
  });
  std::istringstream lines(text), again(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    const bool quoted = line.substr(0, line.find('#')).find_first_of("\"'") != line.npos;
    dhp::check(++number > 0 && (!quoted || CLI::detail::trim_copy(line).starts_with("name")), path,
               ", line ", number, ": a number stands in quotes; leave them out");
  }
  (void)OptionFile(app, "--file").from_config(again);
  visit(result, [&](const std::string& key, double& value, double unit) {
    if (key == same_as_16 && app.count("--" + key) == 0) {
      value = result.flop_16;
      return;
    }
    dhp::check(app.count("--" + key) > 0, path, " lacks ", key,
               "; clusters/laptop.toml has all keys, and dhp_doctor --calibrate measures them");
    dhp::check(!is_count(key) || value == std::floor(value), path, ": ", key, " is ", value,
               "; a whole number is needed");
    value *= unit;
  });
  return result;
}

}  // namespace examples
