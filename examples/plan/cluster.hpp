// Cluster: the hardware figures from which the time of a step is predicted. They come from a TOML file without tables:
// clusters/*.toml describe usual machines, and dhp_doctor --calibrate writes a file for the machines it runs on.
#pragma once

#include <dhp/core/config.hpp>

#include <dhp/core/open_file.hpp>
#include <dhp/core/types.hpp>

#include <algorithm>
#include <string>

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
  double flop_32 = 50e9;       ///< FLOP/s that matrix products reach in fp32
  double flop_16 = 10e9;       ///< FLOP/s in fp16
  double flop_bf16 = 10e9;     ///< FLOP/s in bf16; 0: the device has no bf16
  double flop_dropout = 25e9;  ///< FLOP/s of attention with dropout
  double bytes_per_s = 8e9;    ///< rate at which other operations read and write
  double launch_s = 2e-6;      ///< cost of starting an operation
  double memory_bytes = 8e9;   ///< memory of a device, or of the host if ranks share cores
  double dollars = 0;          ///< price of a device for an hour
  Link device{}, host{.latency_s = 50e-6, .bytes_per_s = 0.1e9},
      rack = host;  ///< between two devices, hosts, racks

  /// Returns the rate of matrix products in this type. Devices have half as many units for 64 bits as for 32.
  [[nodiscard]] double products(dhp::DType type) const {
    dhp::check(flop_bf16 > 0 || type != dhp::DType::bf16, name,
               " has no bf16: give --precision fp16 or fp32");
    return type == dhp::DType::f64    ? flop_32 / 2
           : type == dhp::DType::f32  ? flop_32
           : type == dhp::DType::bf16 ? flop_bf16
                                      : flop_16;
  }
  /// Returns how many of these ranks share `memory_bytes`.
  [[nodiscard]] double sharers(int ranks) const {
    return cores > 0 ? std::min<double>(ranks, devices) : 1;
  }
  /// Calls visitor(key, value, unit) for each key of the file. The file holds value / unit.
  static void visit(auto& cluster, auto visitor) {
    visitor("host.devices", cluster.devices, 1);
    visitor("host.cores", cluster.cores, 1);
    visitor("host.in_a_rack", cluster.hosts, 1);
    visitor("device.tflops_32", cluster.flop_32, 1e12);
    visitor("device.tflops_16", cluster.flop_16, 1e12);
    visitor("device.tflops_bf16", cluster.flop_bf16, 1e12);
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
  /// Throws an error of one sentence that names the wrong line.
  [[nodiscard]] static Cluster parse(const std::string& text, const std::string& path);
  [[nodiscard]] static Cluster read(const std::string& path) {
    return parse(dhp::text_of(path), path);
  }
  [[nodiscard]] std::string text() const;
};

inline std::string Cluster::text() const {
  auto result = dhp::concat("name = \"", name, "\"\n");
  visit(*this, [&](const char* key, double value, double unit) {
    result += dhp::concat(key, " = ", value / unit, "\n");
  });
  return result;
}

}  // namespace examples
