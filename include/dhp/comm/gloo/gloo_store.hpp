// GlooStore: the store that the ranks of a world have met in, as Gloo wants to see it.
#pragma once

#include <dhp/comm/watch/world.hpp>

#include <gloo/rendezvous/store.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace dhp::comm {

/// Its waits end with the world. prefix: of the keys, so that two of them in one store do not meet.
class GlooStore final : public gloo::rendezvous::Store {
 public:
  GlooStore(World& world, std::string prefix) : world_(&world), prefix_(std::move(prefix)) {}
  void set(const std::string& key, const std::vector<char>& data) override {
    world_->store().set(prefix_ + key, std::string(data.begin(), data.end()));
  }
  std::vector<char> get(const std::string& key) override {
    const auto value = world_->get(prefix_ + key);
    return {value.begin(), value.end()};
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const auto& key : keys) static_cast<void>(get(key));
  }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override {
    wait(keys);
  }

 private:
  World* world_;
  std::string prefix_;
};

}  // namespace dhp::comm
