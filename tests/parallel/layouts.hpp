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

/// Checks that losses, norms, values and gradients are within the tolerance of the serial run's.
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

struct EverythingBatches {
  bool changing = false;          ///< new samples in each step; with equal ones the loss falls
  bool fixed = false;             ///< all micro-batches have the same number of masked rows
  std::int64_t short_batch = -1;  ///< the micro-batch with one sample less
};

template <class Dev = dhp::Cpu>
RunResult run_everything(const Layout& layout, const RunSettings& settings,
                         const EverythingOptions& options = {},
                         const EverythingBatches& batches = {}) {
  return run_layout<Dev>(
      layout, settings, [&](dhp::ModelBuilder<Dev>& build) { return everything(build, options); },
      [&](Dev& dev, int step, std::int64_t k) {
        return everything_batch(dev, batches.changing ? step : 0, k, options.vocabulary,
                                everything_samples - (k == batches.short_batch ? 1 : 0),
                                batches.fixed);
      });
}

/// Checks that each layout gives the serial run's numbers. Returns the serial run.
template <class Dev = dhp::Cpu>
RunResult check_layouts(double tolerance, const std::vector<Layout>& layouts,
                        const RunSettings& settings, const EverythingOptions& options = {},
                        const EverythingBatches& batches = {}) {
  const auto serial = run_everything<Dev>({}, settings, options, batches);
  for (const auto& layout : layouts) {
    INFO("layout ", to_text(layout), " of ", name_of(settings.compute));
    check_close(serial, run_everything<Dev>(layout, settings, options, batches), tolerance);
  }
  return serial;
}

}  // namespace tests
