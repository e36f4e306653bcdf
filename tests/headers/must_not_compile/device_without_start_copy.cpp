// A type without start_copy_to_host() is no device.
// error: start_copy_to_host(from, bytes)
#include <dhp/cpu.hpp>

using namespace dhp;

struct Board {
  static constexpr bool host_accessible = true;
  std::shared_ptr<std::byte> allocate(std::size_t) { return {}; }
  void copy_from_host(std::byte*, const std::byte*, std::size_t) {}
  void copy_to_host(std::byte*, const std::byte*, std::size_t) {}
#ifdef GOOD
  HostCopy start_copy_to_host(const std::byte*, std::size_t) { return {}; }
#endif
  void copy(std::byte*, const std::byte*, std::size_t) {}
  void fill_zero(std::byte*, std::size_t) {}
  void synchronize() {}
  [[nodiscard]] std::shared_ptr<Trace> trace() const { return nullptr; }
  [[nodiscard]] TraceMoment moment() const { return {}; }
  int scope(const auto&...) { return 0; }
};
static_assert(Device<Board>);
