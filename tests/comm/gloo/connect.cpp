// A rank chooses the address on which it listens for the others. The choice depends on the machines of all ranks.
#include <dhp/comm/gloo/connect.hpp>
#include <tests/comm/process_ranks.hpp>

namespace {

struct Found {
  std::vector<std::string> addresses;
  std::vector<std::string> ends;
};

/// The addresses that ranks of this machine choose. from: each rank's own address on its connection to the store.
/// hosts: the machines that all ranks have stored; only the first from.size() ranks run.
Found found_by(const std::vector<std::string>& from, const std::vector<std::string>& hosts,
               const ProcessOptions& options = {}) {
  const auto store = std::make_shared<MemoryStore>();
  for (std::size_t rank = 0; rank < hosts.size(); ++rank)
    store->set(concat("arrived/", rank), hosts[rank] + " 4711");
  Found found{std::vector<std::string>(from.size()), std::vector<std::string>(from.size())};
  on_threads(from.size(), [&](std::size_t rank) {
    ProcessWatchdog world(std::make_shared<Connection>(store, from[rank]), static_cast<int>(rank),
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
  return found;
}
const std::string here = detail::host_name();
using Addresses = std::vector<std::string>;

TEST_CASE("gloo connect: ranks listen on their address towards rank 0") {
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

TEST_CASE("gloo connect: a rank that has only a loopback address asks for an interface") {
  const auto expected = [](int rank, const std::string& address) {
    return concat("rank ", rank, " on ", here, " would listen at ", address,
                  ", where those on other cannot reach it; choose the interface of a "
                  "network that leads to them");
  };
  for (const auto& end : found_by({"127.0.0.1", "127.0.1.1"}, {here, here, "other"}).ends)
    CHECK((end == expected(0, "127.0.0.1") || end == expected(1, "127.0.0.1")));
  // Rank 0 is on another machine, behind a tunnel whose local end is loopback.
  CHECK(found_by({"192.0.2.1", "127.0.1.1"}, {"other", here}).ends[1] == expected(1, "127.0.1.1"));
  CHECK(found_by({"192.0.2.1", "127.0.1.1"}, {here, here, "other"}, {.network_interface = "lo"})
            .addresses == Addresses(2, "127.0.0.1"));
}

}  // namespace
