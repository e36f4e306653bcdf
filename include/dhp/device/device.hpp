// concept Device: where memory is, and in which order work on it is done. It is the first argument of
// every op; ops find their implementation for a device by argument-dependent lookup.
#pragma once

#include <dhp/core/types.hpp>

#include <concepts>
#include <cstddef>
#include <memory>

namespace dhp {

/// A device hands out memory (64-byte aligned, uninitialised, returned when the last owner goes),
/// copies between host and itself, and can be waited for. Copies are ordered after earlier work of the
/// device; copy_to_host returns when the bytes are there.
template <class Dev>
concept Device = requires(Dev& dev, std::size_t bytes, std::byte* to, const std::byte* from) {
  { dev.allocate(bytes) } -> std::same_as<std::shared_ptr<std::byte>>;
  {dev.copy_from_host(to, from, bytes)};
  {dev.copy_to_host(to, from, bytes)};
  {dev.copy(to, from, bytes)};
  {dev.fill_zero(to, bytes)};
  {dev.synchronize()};
  { Dev::host_accessible } -> std::convertible_to<bool>;
};

}  // namespace dhp
