// A type without size() is no batcher.
// error: a batcher lacks: std::int64_t size() const
#include <dhp/cpu.hpp>

using namespace dhp;

struct Endless {
#ifdef GOOD
  [[nodiscard]] std::int64_t size() const { return 8; }
#endif
  [[nodiscard]] HostBatch collate(std::span<const std::int64_t>, std::int64_t) const { return {}; }
};

void load(Cpu& dev) { Loader<Cpu, Endless> loader(dev, Endless{}, {}); }
