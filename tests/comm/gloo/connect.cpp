// Where a rank listens for the others, by what it knows of their machines.
#include <dhp/comm/gloo/connect.hpp>
#include <tests/comm/process_ranks.hpp>

namespace {

/// What a rank has of a store that it has reached from that address.
class StoreFrom final : public KeyValueStore {
 public:
  StoreFrom(std::shared_ptr<KeyValueStore> store, std::string from)
      : store_(std::move(store)), from_(std::move(from)) {}
  void set(const std::string& key, const std::string& value) override { store_->set(key, value); }
  std::optional<std::string> find(const std::string& key) override { return store_->find(key); }
  Entries list(const std::string& prefix) override { return store_->list(prefix); }
  void remove(const std::string& key) override { store_->remove(key); }
  bool set_unless(const std::string& guard, const std::string& key,
                  const std::string& value) override {
    return store_->set_unless(guard, key, value);
  }
  std::string own_address() override { return from_; }
  [[nodiscard]] std::string description() const override { return store_->description(); }

 private:
  std::shared_ptr<KeyValueStore> store_;
  std::string from_;
};

struct Found {
  std::vector<std::string> addresses;
  std::vector<std::string> ends;
};

/// Ranks of this machine, which have reached the store of rank 0 from there, or it has been reached there; hosts: what
/// all ranks have said of their machines, of those, too, that have nothing else to say.
Found found_by(const std::vector<std::string>& from, const std::vector<std::string>& hosts,
               const ProcessOptions& options = {}) {
  const auto store = std::make_shared<MemoryStore>();
  for (std::size_t rank = 0; rank < hosts.size(); ++rank)
    store->set(concat("arrived/", rank), hosts[rank] + " 4711");
  Found found{std::vector<std::string>(from.size()), std::vector<std::string>(from.size())};
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < from.size(); ++rank)
    threads.emplace_back([&, rank] {
      ProcessWatchdog world(std::make_shared<StoreFrom>(store, from[rank]), static_cast<int>(rank),
                            static_cast<int>(from.size()), {.period_s = 0.02});
      found.ends[rank] = message_of([&] {
        try {
          found.addresses[rank] = dhp::detail::own_address(world, options);
        } catch (const Aborted&) {
          throw;
        } catch (const Error& error) {
          world.abort(error.sentence());
          throw;
        }
        world.finish(static_cast<int>(rank));
      });
    });
  for (auto& thread : threads) thread.join();
  return found;
}
const std::string here = host_name();
using Addresses = std::vector<std::string>;

TEST_CASE("gloo connect: ranks listen where they reach rank 0, and rank 0 where it is reached") {
  CHECK(
      found_by({"192.0.2.1", "192.0.2.1", "192.0.2.2"}, {here, here, "other", "other"}).addresses ==
      Addresses{"192.0.2.1", "192.0.2.1", "192.0.2.2"});
  CHECK(found_by({"127.0.0.1", "127.0.0.1"}, {here, here}).addresses == Addresses(2, "127.0.0.1"));
  CHECK(found_by({"", ""}, {here, here}).addresses == Addresses(2, "127.0.0.1"));  // not known
}

TEST_CASE("gloo connect: a rank on rank 0's machine listens where others have reached rank 0") {
  CHECK(found_by({"192.0.2.1", "127.0.0.1", "127.0.1.1", "::1"}, {here, here, here, here, "other"})
            .addresses == Addresses(4, "192.0.2.1"));
}

TEST_CASE("gloo connect: who has nothing but an address that others cannot reach asks for one") {
  const auto expected = [](int rank, const std::string& address) {
    return concat("rank ", rank, " on ", here, " would listen at ", address,
                  ", where those on other cannot reach it; choose the interface of a "
                  "network that leads to them");
  };
  for (const auto& end : found_by({"127.0.0.1", "127.0.1.1"}, {here, here, "other"}).ends)
    CHECK((end == expected(0, "127.0.0.1") || end == expected(1, "127.0.0.1")));
  // Over a tunnel.
  CHECK(found_by({"192.0.2.1", "127.0.1.1"}, {"other", here}).ends[1] == expected(1, "127.0.1.1"));
  CHECK(found_by({"192.0.2.1", "127.0.1.1"}, {here, here, "other"}, {.network_interface = "lo"})
            .addresses == Addresses(2, "127.0.0.1"));
}

}  // namespace
