// concept Device: the memory of tensors and the order of work. A device is the first argument of every op, so that
// argument-dependent lookup finds the device's kernels.
#pragma once

#include <dhp/core/types.hpp>

#include <concepts>
#include <cstddef>
#include <cstring>
#include <memory>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

namespace dhp {

namespace detail {

/// Base of every device. It lets argument-dependent lookup find the kernels, which are in namespace detail.
struct Kernels {};

}  // namespace detail

// Forward declarations, because core/trace.hpp takes longer to compile than this header.
class Trace;
class TraceMoment;
enum class TraceKind;

/// A copy from device to host that may still be under way.
class HostCopy {
 public:
  /// Waits for the end of a copy.
  class Arrival {
   public:
    virtual ~Arrival() = default;
    virtual void wait() const = 0;
  };

  HostCopy() = default;
  /// arrival: null if the copy is complete.
  HostCopy(std::shared_ptr<std::byte> data, std::size_t bytes,
           std::shared_ptr<const Arrival> arrival)
      : data_(std::move(data)), bytes_(bytes), arrival_(std::move(arrival)) {}
  [[nodiscard]] static HostCopy on_heap(std::size_t bytes) {
    return {std::shared_ptr<std::byte>(new std::byte[bytes], std::default_delete<std::byte[]>()),
            bytes, nullptr};
  }

  /// Returns the destination, which must not be read before the copy is complete.
  [[nodiscard]] std::byte* data() const { return data_.get(); }
  void wait_here() const {
    if (arrival_) arrival_->wait();
  }
  /// Waits for the copy and returns its values as type T.
  template <class T>
  [[nodiscard]] std::vector<T> wait() const {
    wait_here();
    std::vector<T> values(bytes_ / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), data_.get(), values.size() * sizeof(T));
    return values;
  }

 private:
  std::shared_ptr<std::byte> data_;
  std::size_t bytes_ = 0;
  std::shared_ptr<const Arrival> arrival_;
};

/// A device allocates memory (64-byte aligned, uninitialized, reference-counted), copies between host and device, and
/// can be synchronized. Copies run after the device's earlier work. copy_to_host blocks the host; start_copy_to_host
/// does not. scope("forward", 3) records a trace span, if the device has a trace.
template <class Dev>
concept Device = requires(Dev& dev, std::size_t bytes, std::byte* to, const std::byte* from) {
  { dev.allocate(bytes) } -> std::same_as<std::shared_ptr<std::byte>>;
  {dev.copy_from_host(to, from, bytes)};
  {dev.copy_to_host(to, from, bytes)};
  { dev.start_copy_to_host(from, bytes) } -> std::same_as<HostCopy>;
  {dev.copy(to, from, bytes)};
  {dev.fill_zero(to, bytes)};
  {dev.synchronize()};
  { dev.trace() } -> std::convertible_to<std::shared_ptr<Trace>>;
  { dev.moment() } -> std::same_as<TraceMoment>;
  {dev.scope(std::string())};
  {dev.scope("", 0, TraceKind())};
  {dev.scope("", std::source_location())};
  { Dev::host_accessible } -> std::convertible_to<bool>;
};

class Cpu;
namespace detail {
/// Whether the device's tensors have values. Those of Meta have none.
template <class Dev>
inline constexpr bool has_data = true;
/// Whether the device works asynchronously, so that the host only issues work.
template <class Dev>
inline constexpr bool is_asynchronous = !Dev::host_accessible;
template <>
inline constexpr bool is_asynchronous<Cpu> = false;
}  // namespace detail

}  // namespace dhp
