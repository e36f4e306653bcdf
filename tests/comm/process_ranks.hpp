// Ranks as they are between processes, but in threads of the test: each has its own world, store and transport.
#pragma once

#include <dhp/comm/peers.hpp>
#include <tests/comm/ranks.hpp>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace tests {

class MemoryStore final : public KeyValueStore {
 public:
  void set(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    check_up();
    values_[key] = value;
  }
  std::optional<std::string> find(const std::string& key) override {
    const std::lock_guard lock(mutex_);
    check_up();
    const auto found = values_.find(key);
    return found == values_.end() ? std::nullopt : std::optional(found->second);
  }
  Entries list(const std::string& prefix) override {
    const std::lock_guard lock(mutex_);
    check_up();
    Entries entries;
    for (const auto& entry : values_)
      if (entry.first.starts_with(prefix)) entries.push_back(entry);
    return entries;
  }
  void remove(const std::string& key) override {
    const std::lock_guard lock(mutex_);
    values_.erase(key);
  }
  [[nodiscard]] std::string description() const override { return "store in memory"; }
  /// From now on it cannot be reached.
  void vanish() {
    const std::lock_guard lock(mutex_);
    down_ = true;
  }

 private:
  void check_up() const {
    if (down_) throw StoreLost("it does not answer");
  }
  std::mutex mutex_;
  std::map<std::string, std::string> values_;
  bool down_ = false;
};

/// body(comm, dev) of every rank, over a transport that make(world) connects; what each ended with, "" if it
/// returned. store_of(rank): what it has of the store.
template <class Make, class Body, class StoreOf>
std::vector<std::string> ends_with(int ranks, double timeout_s, Make make, Body body,
                                   StoreOf store_of) {
  std::vector<std::string> ends(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      auto& end = ends[static_cast<std::size_t>(rank)];
      const auto world = std::make_shared<ProcessWorld>(
          store_of(rank), rank, ranks,
          ProcessWorld::Options{
              .timeout_s = timeout_s, .period_s = 0.05, .name = concat("thread ", rank)});
      try {
        {
          auto comm = make(world);
          Cpu dev;
          body(comm, dev);
        }
        world->finish();
      } catch (const Aborted& error) {
        end = error.sentence();
      } catch (const Error& error) {
        end = error.sentence();
        world->abort(error.sentence());
      }
    });
  for (auto& thread : threads) thread.join();
  return ends;
}
template <class Make, class Body>
std::vector<std::string> ends_of(
    int ranks, double timeout_s, Make make, Body body,
    std::shared_ptr<KeyValueStore> store = std::make_shared<MemoryStore>()) {
  return ends_with(ranks, timeout_s, make, body, [&](int) { return store; });
}

}  // namespace tests
