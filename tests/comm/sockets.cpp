// PeerComm over connections of TCP, on the loopback of this machine.
#include <dhp/comm/shared_transport.hpp>
#include <dhp/comm/sockets.hpp>
#include <tests/comm/collectives.hpp>
#include <tests/comm/peer_suite.hpp>

#include <doctest/doctest.h>

#include <algorithm>

namespace {

using namespace tests;

auto over_sockets(SocketMeshOptions options = {}, SocketMessages::Options messages = {}) {
  return [=](const std::shared_ptr<ProcessWorld>& world) {
    return PeerComm(world, std::make_shared<SocketTransport>(*world, options, messages));
  };
}

TEST_CASE("sockets: what every transport has to do") { check_peers(over_sockets()); }

TEST_CASE("sockets: what is a short message changes nothing") {
  for (const std::size_t short_bytes : {0, 100})
    check_moves(over_sockets({}, {.short_bytes = short_bytes}), 3);
}

TEST_CASE("sockets: IPv6") { check_moves(over_sockets({.address = "::1"}), 3); }

TEST_CASE("sockets: a last chunk that is short comes after the long ones") {
  on_worlds_of(over_sockets(), {2, 3}, [](Comm<Cpu>& world, Cpu& dev) -> std::string {
    const int n = world.size();
    const std::int64_t count = n * ((std::int64_t{1} << 19) + 100);
    auto x = tensor_of(dev, brought_by<float>(world.rank(), count));
    world.all_reduce(dev, x.mut()).wait();
    const auto expected = generate<float>(
        count, [&](auto i) { return n * (n - 1) / 2 + n * collective_value(0, i); });
    return same_bits(x.to_host<float>(dev), expected) ? "" : "all_reduce";
  });
}

// Two ranks on each of two machines. Each waits first for the one after it: in memory, over TCP, in memory, over TCP.
TEST_CASE(
    "sockets: joined with shared memory, what is begun over one goes on in waits for the other") {
  const auto joined = [](const std::shared_ptr<ProcessWorld>& world) {
    const auto near = connect_shared(*world, {.domain = concat("machine ", world->rank() / 2)});
    check(!near.all && near.transport, "memory is not shared as it should be");
    auto far = std::make_shared<SocketTransport>(*world, SocketMeshOptions{},
                                                 SocketMessages::Options{.helped = true});
    return PeerComm(world, std::make_shared<JoinedTransport>(near.transport, std::move(far)));
  };
  on_worlds_of(joined, {4}, [](Comm<Cpu>& world, Cpu& dev) -> std::string {
    const std::int64_t count = std::int64_t{1}
                               << 21;  // more than the system holds for a connection
    auto mine = tensor_of(dev, brought_by<float>(world.rank(), count));
    auto all = zeros(dev, world.size() * count);
    for (int round = 0; round < 3; ++round) world.all_gather(dev, mine.view(), all.mut()).wait();
    const auto got = all.to_host<float>(dev);
    for (int rank = 0; rank < world.size(); ++rank) {
      const auto of_rank = brought_by<float>(rank, count);
      if (!std::equal(of_rank.begin(), of_rank.end(), got.begin() + rank * count)) return "gather";
    }
    return "";
  });
  check_moves(joined, 4);
}

TEST_CASE("sockets: they say what carries an axis") {
  const auto ends = ends_of(2, patient_s, over_sockets(), [](PeerComm& world, Cpu&) {
    check(world.transport() == "TCP at 127.0.0.1", world.transport());
  });
  for (const auto& end : ends) CHECK(end == "");
}

}  // namespace
