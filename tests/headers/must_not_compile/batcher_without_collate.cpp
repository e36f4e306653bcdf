// A type without collate() is no batcher.
// error: a batcher lacks: HostBatch collate(
#include <dhp/cpu.hpp>

using namespace dhp;

struct Samples {
  [[nodiscard]] std::int64_t size() const { return 8; }
#ifdef GOOD
  [[nodiscard]] HostBatch collate(std::span<const std::int64_t>, std::int64_t) const { return {}; }
#endif
};

void load(Cpu& dev) { Loader<Cpu, Samples> loader(dev, Samples{}, {}); }
