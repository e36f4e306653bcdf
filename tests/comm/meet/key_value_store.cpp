// What every store inherits: get() waits.
#include <dhp/comm/meet/key_value_store.hpp>
#include <tests/support/tensors.hpp>

#include <doctest/doctest.h>

#include <map>

namespace {

using namespace tests;

// Sets "late" when it has been asked for it often enough.
class SlowStore final : public KeyValueStore {
 public:
  void set(const std::string& key, const std::string& value) override { table_[key] = value; }
  std::optional<std::string> find(const std::string& key) override {
    check_key(key);
    if (++asked == 20) set("late", "here");
    const auto at = table_.find(key);
    return at == table_.end() ? std::nullopt : std::optional(at->second);
  }
  Entries list(const std::string&) override { return {table_.begin(), table_.end()}; }
  void remove(const std::string& key) override { table_.erase(key); }
  std::string description() const override { return "slow store"; }

  int asked = 0;

 private:
  std::map<std::string, std::string> table_;
};

TEST_CASE("key value store: get waits, with pauses that grow, and not for ever") {
  SlowStore store;
  const auto start = std::chrono::steady_clock::now();
  CHECK(store.get("late", 60) == "here");
  CHECK(store.asked == 20);
  const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
  CHECK(waited.count() > 0.2);
  CHECK(store.get("late", 0) == "here");
  store.asked = 100;
  CHECK(message_of([&] { (void)store.get("never", 0.1); }) ==
        "nobody has set \"never\" in the slow store within 0.1 s; has the rank that is to set it "
        "ended, or not come so far?");
  CHECK(store.asked < 120);
}

TEST_CASE("key value store: a lost store is an error of its own kind") {
  CHECK_THROWS_AS(throw StoreLost("gone"), Error);
  CHECK(message_of([] { throw StoreLost("gone"); }) == "gone");
  CHECK(std::string(StoreLost("gone").what()).find("key_value_store.cpp:") != std::string::npos);
}

}  // namespace
