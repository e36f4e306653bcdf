// concept Device: where memory is, and in which order work on it is done. It is the first argument of
// every op; ops find their implementation for a device by argument-dependent lookup.
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

// Of core/trace.hpp, which costs more to compile than all else here.
class Trace;
class TraceMoment;
enum class TraceKind;

/// Bytes that are on their way from a device to the host.
class HostCopy {
 public:
  /// What tells that the bytes are there.
  class Arrival {
   public:
    virtual ~Arrival() = default;
    virtual void wait() const = 0;
  };

  HostCopy() = default;
  /// arrival: null where the bytes are in `data` already.
  HostCopy(std::shared_ptr<std::byte> data, std::size_t bytes,
           std::shared_ptr<const Arrival> arrival)
      : data_(std::move(data)), bytes_(bytes), arrival_(std::move(arrival)) {}
  [[nodiscard]] static HostCopy on_heap(std::size_t bytes) {
    return {std::shared_ptr<std::byte>(new std::byte[bytes], std::default_delete<std::byte[]>()),
            bytes, nullptr};
  }

  /// Where they will lie; not to be read yet.
  [[nodiscard]] std::byte* data() const { return data_.get(); }
  /// Waits, and gives them as values of T.
  template <class T>
  [[nodiscard]] std::vector<T> wait() const {
    if (arrival_) arrival_->wait();
    std::vector<T> values(bytes_ / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), data_.get(), values.size() * sizeof(T));
    return values;
  }

 private:
  std::shared_ptr<std::byte> data_;
  std::size_t bytes_ = 0;
  std::shared_ptr<const Arrival> arrival_;
};

/// A device hands out memory (64-byte aligned, uninitialised, returned when the last owner goes),
/// copies between host and itself, and can be waited for. Copies are ordered after earlier work of the
/// device; copy_to_host returns when the bytes are there, start_copy_to_host at once. scope("forward", 3) is a span
/// of its trace, where it has one.
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

}  // namespace dhp
