// Reads a cluster's file as a file of options, of which none may lack.
#include "../plan/cluster.hpp"

#include "checked_options.hpp"

#include <sstream>

namespace examples {

Cluster Cluster::parse(const std::string& text, const std::string& path) {
  Cluster made{.name = path};
  CommandLine app("");
  app.CLI::App::add_option("--file")->configurable(false)->add_result(path);
  app.add_option("--name", made.name, "");
  visit(made, [&](const std::string& key, double& value, double) {
    const bool is_count = key == "host.devices" || key == "host.in_a_rack";
    const bool may_be_zero =
        key == "host.cores" || key == "device.dollars_per_hour" || key.ends_with("us");
    const double least = is_count ? 1 : may_be_zero ? 0 : 1e-9;
    app.add_option("--" + key, value, "", number_from_to(least, 1e15));
  });
  std::istringstream lines(text);
  (void)OptionFile(app, "--file").from_config(lines);
  visit(made, [&](const std::string& key, double& value, double unit) {
    dhp::check(
        app.count("--" + key) > 0, path, " lacks ", key,
        "; clusters/laptop.toml has all that there is, and dhp_doctor --calibrate writes it");
    value *= unit;
  });
  return made;
}

}  // namespace examples
