#include <dhp/comm/messages/process_comm.hpp>
#include <tests/comm/process_ranks.hpp>

TEST_CASE("process comm: over messages in memory, passes the tests of every engine") {
  // Worlds run one after the other. The ranks of a world have the same store, which gives them one network.
  std::mutex mutex;
  std::map<KeyValueStore*, std::weak_ptr<MemoryNetwork>> networks;
  check_processes([&](const std::shared_ptr<ProcessWatchdog>& world) {
    const std::lock_guard lock(mutex);
    auto& known = networks[&world->store()];
    auto network = known.lock();
    if (!network) known = network = std::make_shared<MemoryNetwork>();
    return std::make_shared<MemoryMessages>(*world, network);
  });
}
