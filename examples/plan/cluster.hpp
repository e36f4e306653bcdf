// Cluster: the hardware figures that the time of a step is computed from. A TOML file without tables has them:
// clusters/*.toml describe usual machines, and dhp_doctor --calibrate measures its own.
#pragma once

#include <dhp/core/config.hpp>

#include <dhp/core/open_file.hpp>

#include <algorithm>
#include <charconv>
#include <limits>
#include <set>
#include <string>
#include <string_view>

namespace examples {

/// A rank's link: latency of a message, and bandwidth in each direction.
struct Link {
  double latency_s = 10e-6;
  double bytes_per_s = 5e9;
};

/// The defaults are those of a laptop.
struct Cluster {
  std::string name = "a laptop";
  double devices = 1024;       ///< ranks that a host takes
  double cores = 2;            ///< cores of a host; 0: each rank has its own device
  double hosts = 1024;         ///< hosts of a rack
  double flop_32 = 50e9;       ///< rate that matrix products reach in 32 bits
  double flop_16 = 10e9;       ///< rate in 16 bits
  double flop_dropout = 25e9;  ///< rate of attention with dropout
  double bytes_per_s = 8e9;    ///< rate at which other operations read and write
  double launch_s = 2e-6;      ///< cost of starting an operation
  double memory_bytes = 8e9;   ///< memory of a device, or of the host if ranks share cores
  double dollars = 0;          ///< price of a device for an hour
  Link device{}, host{.latency_s = 50e-6, .bytes_per_s = 0.1e9},
      rack = host;  ///< between two devices, hosts, racks

  /// Returns how many of these ranks share `memory_bytes`.
  [[nodiscard]] double sharers(int ranks) const {
    return cores > 0 ? std::min<double>(ranks, devices) : 1;
  }
  /// Calls visitor(key, value, unit) for each key of the file, which states value / unit.
  static void visit(auto& cluster, auto visitor) {
    visitor("host.devices", cluster.devices, 1);
    visitor("host.cores", cluster.cores, 1);
    visitor("host.in_a_rack", cluster.hosts, 1);
    visitor("device.tflops_32", cluster.flop_32, 1e12);
    visitor("device.tflops_16", cluster.flop_16, 1e12);
    visitor("device.tflops_dropout", cluster.flop_dropout, 1e12);
    visitor("device.gb_per_s", cluster.bytes_per_s, 1e9);
    visitor("device.launch_us", cluster.launch_s, 1e-6);
    visitor("device.memory_gb", cluster.memory_bytes, 1e9);
    visitor("device.dollars_per_hour", cluster.dollars, 1);
    visitor("device_link.us", cluster.device.latency_s, 1e-6);
    visitor("device_link.gb_per_s", cluster.device.bytes_per_s, 1e9);
    visitor("host_link.us", cluster.host.latency_s, 1e-6);
    visitor("host_link.gb_per_s", cluster.host.bytes_per_s, 1e9);
    visitor("rack_link.us", cluster.rack.latency_s, 1e-6);
    visitor("rack_link.gb_per_s", cluster.rack.bytes_per_s, 1e9);
  }
  [[nodiscard]] static Cluster parse(const std::string& text, const std::string& path);
  [[nodiscard]] static Cluster read(const std::string& path) {
    return parse(dhp::text_of(path), path);
  }
  [[nodiscard]] std::string text() const;
};

/// Throws an error of one sentence that names the wrong line.
inline Cluster Cluster::parse(const std::string& text, const std::string& path) {
  Cluster made;
  std::set<std::string> found;
  int number = 0;
  const auto trimmed = [](std::string_view part) {
    const auto first = part.find_first_not_of(" \t\r");
    return first == part.npos ? std::string_view()
                              : part.substr(first, part.find_last_not_of(" \t\r") + 1 - first);
  };
  for (std::string_view rest = text; !rest.empty();) {
    const auto end = std::min(rest.find('\n'), rest.size());
    auto line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    ++number;
    const auto wrong = [&](const auto&... what) {
      dhp::fail(path, ", line ", number, ": ", what...);
    };
    const bool quoted = line.find('"') < line.find('#');
    line = trimmed(line.substr(0, line.find('#', quoted ? line.rfind('"') : 0)));
    if (line.empty()) continue;
    const auto equals = line.find('=');
    if (equals == line.npos) wrong("\"", line, "\" is not key = number");
    const auto key = std::string(trimmed(line.substr(0, equals)));
    const auto value = trimmed(line.substr(equals + 1));
    if (!found.insert(key).second) wrong(key, " is there twice; leave one of them");
    if (key == "name") {
      if (value.size() < 2 || value.front() != '"' || value.back() != '"')
        wrong("a name stands in quotes: name = \"", value, "\"");
      made.name = value.substr(1, value.size() - 2);
      continue;
    }
    bool known = false;
    visit(made, [&](std::string_view name, double& into, double unit) {
      if (name != key) return;
      known = true;
      const auto* const last = value.data() + value.size();
      const auto read = std::from_chars(value.data(), last, into);
      const bool may_be_zero =
          name == "host.cores" || name == "device.dollars_per_hour" || name.ends_with("us");
      if (read.ec != std::errc() || read.ptr != last || !(may_be_zero ? into >= 0 : into > 0) ||
          into > 1e15)
        wrong(key, " is a number ", may_be_zero ? "of 0 or more" : "above 0", ", not ",
              value.empty() ? "nothing" : value);
      into *= unit;
    });
    if (!known) wrong("there is no ", key, "; clusters/laptop.toml has all that there is");
  }
  visit(made, [&](std::string_view name, const double&, double) {
    dhp::check(
        found.contains(std::string(name)), path, " lacks ", name,
        "; clusters/laptop.toml has all that there is, and dhp_doctor --calibrate writes it");
  });
  return made;
}

inline std::string Cluster::text() const {
  auto made = dhp::concat("name = \"", name, "\"\n");
  visit(*this, [&](std::string_view key, const double& value, double unit) {
    made += dhp::concat(key, " = ", value / unit, "\n");
  });
  return made;
}

}  // namespace examples
