// Compares runs of the model that has everything. On any device.
#pragma once

#include <tests/support/everything.hpp>
#include <tests/support/layouts.hpp>

namespace tests {

inline void check_losses(const RunResult& serial, const RunResult& found, double tolerance) {
  REQUIRE(found.losses.size() == serial.losses.size());
  for (std::size_t step = 0; step < serial.losses.size(); ++step)
    CHECK(std::abs(found.losses[step] - serial.losses[step]) <= tolerance * serial.losses[step]);
}

/// Losses, norms, values and gradients, each within the tolerance of the serial run's.
inline void check_close(const RunResult& serial, const RunResult& found, double tolerance) {
  check_losses(serial, found, tolerance);
  for (std::size_t step = 0; step < serial.norms.size(); ++step)
    CHECK(std::abs(found.norms[step] - serial.norms[step]) <= tolerance * serial.norms[step]);
  const auto values = difference(serial.values, found.values);
  const auto gradients = difference(serial.gradients, found.gradients);
  INFO("worst value in ", values.tensor, ", worst gradient in ", gradients.tensor);
  CHECK(values.worst <= tolerance);
  CHECK(gradients.worst <= tolerance);
}

inline void check_same_bits(const RunResult& serial, const RunResult& found) {
  check_close(serial, found, 0);
}

}  // namespace tests
