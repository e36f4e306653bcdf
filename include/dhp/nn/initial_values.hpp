// InitialValues writes a rank's part of the parameters' initial values. The host's threads compute them and round them
// to the type of the values.
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
  /// Step number of the random series; training never reaches this step.
  static constexpr std::uint32_t series = 0xffffffffu;

  /// Keeps a reference to the device, which must outlive this object.
  InitialValues(Dev& dev, std::uint64_t seed) : dev_(dev), seed_(seed) {}

  /// Writes this rank's elements from `first` on to `to`. Each value is a function of the element's index in the
  /// unsplit parameter, so splitting a parameter changes no value.
  void write(const ParameterState<Dev>& parameter, std::int64_t first, View<Dev> to) {
    if constexpr (has_data<Dev> && Dev::host_accessible) {
      fill(parameter, first, to.dtype(), to.bytes(), to.count());
    } else if constexpr (has_data<Dev>) {
      const auto size = size_of(to.dtype());
      const auto max_staged = max_staged_bytes / static_cast<std::int64_t>(size);
      std::vector<std::byte> result(size * as_size(std::min(to.count(), max_staged)));
      for (std::int64_t begin = 0; begin < to.count(); begin += max_staged) {
        const auto count = std::min(max_staged, to.count() - begin);
        fill(parameter, first + begin, to.dtype(), result.data(), count);
        dev_.copy_from_host(to.bytes() + as_size(begin) * size, result.data(),
                            as_size(count) * size);
      }
    }
  }

 private:
  static constexpr std::int64_t tile = 1 << 13;
  // Copies of 1 MiB or more make Cuda use a separate copy stream, which needs memory on the GPU.
  static constexpr std::int64_t max_staged_bytes = 96 * tile;

  void fill(const ParameterState<Dev>& parameter, std::int64_t first, DType type, std::byte* to,
            std::int64_t count) {
    const auto& spec = parameter.spec;
    const RandomStream stream{seed_, series, parameter.use};
    on_threads((count + tile - 1) / tile, [&](std::int64_t number) {
      const auto last = std::min(count, (number + 1) * tile);
      for (auto at = number * tile; at < last;) {
        const auto run = spec.contiguous() - (first + at) % spec.contiguous();
        const auto some = std::min(run, last - at);
        visit_floating(type, [&]<class T>(TypeTag<T>) {
          spec.init.fill(stream, spec.unsplit_index(first + at),
                         std::span(reinterpret_cast<T*>(to) + at, as_size(some)));
        });
        at += some;
      }
    });
  }
  void on_threads(std::int64_t tiles, FunctionRef<void(std::int64_t)> body) {
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
