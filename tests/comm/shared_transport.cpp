// PeerComm over shared memory; and over both that and another transport, for ranks of several machines.
#include <dhp/comm/progress.hpp>
#include <dhp/comm/shared_transport.hpp>
#include <tests/comm/peer_suite.hpp>

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <atomic>
#include <memory>
#include <vector>

namespace {

using namespace tests;

using Options = SharedMessages::Options;
auto over_memory(Options options) {
  return [options](const std::shared_ptr<ProcessWorld>& world) {
    const auto shared = connect_shared(*world, {.messages = options});
    check(shared.all && shared.transport, "memory is not shared");
    return PeerComm(world, shared.transport);
  };
}

TEST_CASE("shared_transport: what every transport has to do") { check_peers(over_memory({})); }

TEST_CASE("shared_transport: tiny pieces and windows change nothing") {
  for (const auto& options : {Options{.piece_bytes = 1000, .window_bytes = 1},
                              Options{.piece_bytes = 7, .window_bytes = 100}})
    check_moves(over_memory(options), 3);
}

TEST_CASE("shared_transport: what nobody expects yet holds up nothing, not even in a full lane") {
  const auto ends = ends_of(2, patient_s, over_memory({}), [](PeerComm& world, Cpu& dev) {
    constexpr int groups = 100;  // of four messages each: more than a lane has room for
    std::vector<PeerComm> lanes;
    for (int group = 0; group < groups; ++group) lanes.push_back(world.split(0, world.rank()));
    auto x = tensor_of<std::int32_t>(dev, {0});
    if (world.rank() == 0) {
      for (int lane = 0; lane < groups; ++lane)
        for (int message = 0; message < 4; ++message) {
          auto own = tensor_of<std::int32_t>(dev, {4 * lane + message});
          lanes[static_cast<std::size_t>(lane)].send(dev, std::move(own), 1);
        }
      return;
    }
    for (int lane = groups - 1; lane >= 0; --lane)
      for (int message = 0; message < 4; ++message) {
        lanes[static_cast<std::size_t>(lane)].recv(dev, x.mut(), 0);
        const auto got = x.view().data<std::int32_t>()[0];
        check(got == 4 * lane + message, "got ", got, " in lane ", lane);
      }
  });
  for (const auto& end : ends) CHECK(end == "");
}

TEST_CASE("shared_transport: a collective that one rank comes late to holds up no message") {
  const auto ends = ends_of(2, patient_s, over_memory({}), [](PeerComm& world, Cpu& dev) {
    auto all = Comm<Cpu>::of(world);
    Progress<Cpu> progress(all);
    auto large = zeros(dev, 5000000);
    auto x = zeros(dev, 300000);
    // Rank 1 begins the collective when it has the message, which rank 0 sends after it has begun.
    Event<Cpu> event;
    if (world.rank() == 0) {
      event = progress.all_reduce(dev, large.mut());
      sleep_ms(50);
      world.send(dev, x.share(), 1);
    } else {
      world.recv(dev, x.mut(), 0);
      event = progress.all_reduce(dev, large.mut());
    }
    event.wait();
  });
  for (const auto& end : ends) CHECK(end == "");
}

TEST_CASE("shared_transport: it says what carries an axis") {
  const auto ends = ends_of(2, patient_s, over_memory({}), [](PeerComm& world, Cpu&) {
    check(world.transport() == "shared memory", world.transport());
    auto alone = world.split(world.rank(), 0);
    check(alone.transport() == "no other rank", alone.transport());
  });
  for (const auto& end : ends) CHECK(end == "");
}

TEST_CASE("shared_transport: a rank that wants none shares none") {
  std::atomic<int> with = 0;
  const auto ends = ends_of(
      3, patient_s,
      [&](const std::shared_ptr<ProcessWorld>& world) {
        const auto shared =
            connect_shared(*world, {.domain = world->rank() == 1 ? "" : memory_domain()});
        check(!shared.all, "they do");
        check(shared.refused.empty(), shared.refused);
        for (int other = 0; other < 3; ++other)
          with += shared.transport && shared.transport->reaches(other);
        return shared;
      },
      [](SharedRanks&, Cpu&) {});
  for (const auto& end : ends) CHECK(end == "");
  CHECK(with == 2);  // 0 and 2, each with the other
}

TEST_CASE("shared_transport: what the system refuses is said, and the others are not held up") {
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const auto ends = ends_of(
      2, patient_s,
      [&](const std::shared_ptr<ProcessWorld>& world) {
        rlimit none = before;
        none.rlim_cur = 0;  // no file can be opened, nor memory be made
        REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
        const auto shared = connect_shared(*world, {.domain = "here"});
        REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
        check(!shared.all && !shared.transport, "it is shared");
        check(shared.refused == "cannot create shared memory: Too many open files", shared.refused);
        return shared;
      },
      [](SharedRanks&, Cpu&) {});
  for (const auto& end : ends) CHECK(end == "");
}

// Ranks 0 and 1 on one machine, the others on another; what joins the two is memory as well, of another kind.
TEST_CASE("shared_transport: joined with another one") {
  const auto two_machines = [](const std::shared_ptr<ProcessWorld>& world) {
    const auto near = connect_shared(*world, {.domain = concat("machine ", world->rank() / 2)});
    const auto far = connect_shared(*world, {.keys = "far/"});
    check(!near.all && near.transport && far.all, "memory is not shared as it should be");
    for (int other = 0; other < world->size(); ++other)
      check(near.transport->reaches(other) ==
                (other != world->rank() && other / 2 == world->rank() / 2),
            "rank ", world->rank(), " reaches ", other);
    return PeerComm(world, std::make_shared<JoinedTransport>(near.transport, far.transport));
  };
  check_moves(two_machines, 4);
}

}  // namespace
