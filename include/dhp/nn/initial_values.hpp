// InitialValues writes the initial values of a rank's part of parameters. The host's threads make them, in the
// parameter's own type.
#pragma once

#include <dhp/device/thread_pool.hpp>
#include <dhp/nn/parameter.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace dhp::detail {
template <class Dev>
class InitialValues {
 public:
  /// A step number that training never reaches.
  static constexpr std::uint32_t step = 0xffffffffu;

  /// Keeps a reference to the device.
  InitialValues(Dev& dev, std::uint64_t seed) : dev_(dev), seed_(seed) {}

  /// to: the elements from `first` on of this rank's part of the parameter. Each is a function of its index in the
  /// unsplit parameter, so splitting changes no value.
  void write(const ParameterState<Dev>& parameter, std::int64_t first, View<Dev> to) {
    if constexpr (has_data<Dev>)
      visit_floating(to.dtype(), [&]<class T>(Tag<T>) {
        if constexpr (Dev::host_accessible) {
          fill(parameter, first, std::span(to.template data<T>(), size_of(to)));
        } else {
          std::vector<T> made(std::min(size_of(to), most_staged));
          for (std::size_t begin = 0; begin < size_of(to); begin += made.size()) {
            made.resize(std::min(made.size(), size_of(to) - begin));
            fill(parameter, first + static_cast<std::int64_t>(begin), std::span(made));
            dev_.copy_from_host(to.bytes() + begin * sizeof(T),
                                reinterpret_cast<const std::byte*>(made.data()),
                                made.size() * sizeof(T));
          }
        }
      });
  }

 private:
  static constexpr std::int64_t tile = 1 << 13;
  // Keeps copies too small for Cuda's upload stream, which needs a staging buffer on the GPU.
  static constexpr std::size_t most_staged = 24 * tile;

  [[nodiscard]] static std::size_t size_of(View<Dev> view) {
    return static_cast<std::size_t>(view.count());
  }
  template <class T>
  void fill(const ParameterState<Dev>& parameter, std::int64_t first, std::span<T> to) {
    const auto& spec = parameter.spec;
    const RandomStream stream{seed_, step, parameter.use};
    const auto count = static_cast<std::int64_t>(to.size());
    on_threads((count + tile - 1) / tile, [&](std::int64_t number) {
      const auto last = std::min(count, (number + 1) * tile);
      for (auto at = number * tile; at < last;) {
        const auto run = spec.contiguous() - (first + at) % spec.contiguous();
        const auto some = std::min(run, last - at);
        spec.init.fill(stream, spec.unsplit_index(first + at),
                       to.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(some)));
        at += some;
      }
    });
  }
  template <class Body>
  void on_threads(std::int64_t tiles, const Body& body) {
    if constexpr (requires { dev_.for_tiles(tiles, body); }) {
      dev_.for_tiles(tiles, body);
    } else if constexpr (requires { dev_.host_threads(); }) {
      if (!pool_) pool_.emplace(dev_.host_threads());
      pool_->run(tiles, body);
    } else {
      for (std::int64_t at = 0; at < tiles; ++at) body(at);
    }
  }

  Dev& dev_;
  std::uint64_t seed_;
  std::optional<ThreadPool> pool_;
};
}  // namespace dhp::detail
