#include <dhp/comm/noted.hpp>
#include <dhp/comm/progress.hpp>
#include <tests/comm/collectives.hpp>

#include <doctest/doctest.h>

#include <atomic>

namespace {

using namespace tests;

/// What the ledgers of n ranks that are threads have, by rank.
template <class Body>
std::vector<std::vector<LedgerEntry>> entries_of(int n, Body body) {
  return on_ranks(n, [&](Comm<Cpu>& world, Cpu& dev) {
    const auto ledger = std::make_shared<Ledger>();
    {
      auto comm = Comm<Cpu>::of(NotedComm(world, ledger));
      body(comm, dev);
    }
    CHECK(ledger->under_way().empty());
    return ledger->ended();
  });
}

TEST_CASE("noted: what is done is what was done before") {
  using Check = std::string (*)(Comm<Cpu>&, Cpu&);
  for (const Check check_one :
       {Check(wrong_all_reduce), Check(wrong_blocks), Check(wrong_broadcast), Check(wrong_laws),
        Check(wrong_messages), Check(wrong_rounds)})
    (void)entries_of(4, [&](Comm<Cpu>& world, Cpu& dev) {
      check(world.transport() == "threads of one process", world.transport());
      const auto wrong = check_one(world, dev);
      check(wrong.empty(), wrong);
    });
}

TEST_CASE(
    "noted: every call has an entry, with a key that all of its ranks have and no other call has") {
  const auto all = entries_of(3, [](Comm<Cpu>& world, Cpu& dev) {
    auto x = Tensor<Cpu>::zeros(dev, DType::f32, Shape{4});
    auto wide = Tensor<Cpu>::zeros(dev, DType::f32, Shape{4 * world.size()});
    world.all_reduce(dev, x.mut()).wait(dev);
    auto part = world.split(world.rank() / 2, world.rank());  // 0 and 1; 2
    auto again = world.split(0, -world.rank());               // 2, 1, 0
    world.reduce_scatter(dev, wide.view(), x.mut()).wait(dev);
    again.all_gather(dev, x.view(), wide.mut()).wait(dev);
    again.broadcast(dev, x.mut(), 1).wait(dev);
    if (part.size() == 2) {
      if (part.rank() == 0) part.send(dev, x.share(), 1);
      else part.recv(dev, x.mut(), 0);
      auto half = Tensor<Cpu>::zeros(dev, DType::f32, Shape{4});
      part.all_to_all(dev, x.view(), half.mut()).wait(dev);
    }
    if (again.rank() == 0) again.send(dev, x.share(), 2);
    if (again.rank() == 2) again.recv(dev, x.mut(), 0);
    world.barrier();
  });
  using Lines = std::vector<std::string>;
  std::vector<Lines> lines(3);
  for (std::size_t rank = 0; rank < 3; ++rank)
    for (const auto& entry : all[rank]) {
      CHECK(contains(to_text(entry.where), "noted.cpp:"));
      CHECK_FALSE(entry.failed);
      std::string members;
      for (const int member : *entry.group) append_text(members, concat(" ", member));
      lines[rank].push_back(concat(entry.key, members, ", ", entry.shown(), ", ", entry.bytes));
    }
  const Lines both{"0@0#1 0 1 2, all_reduce of 4 f32 (sum), 16",
                   "0@0#2 0 1 2, split, 0",
                   "0@0#3 0 1 2, split, 0",
                   "0@0#4 0 1 2, reduce_scatter of 12 f32, 48",
                   "2@2#1 2 1 0, all_gather of 4 f32, 16",
                   "2@2#2 2 1 0, broadcast of 4 f32 from rank 1, 16"};
  const auto with = [&](const Lines& more) {
    auto expected = both;
    expected.insert(expected.end(), more.begin(), more.end());
    expected.push_back("0@0#5 0 1 2, barrier, 0");
    return expected;
  };
  CHECK(lines[0] ==
        with({"1@0:0>1#1 0 1, send of a message of 4 f32, 16", "1@0#1 0 1, all_to_all of 4 f32, 16",
              "2@2:2>0#1 2 1 0, recv of a message of 4 f32, 16"}));
  CHECK(lines[1] == with({"1@0:0>1#1 0 1, recv of a message of 4 f32, 16",
                          "1@0#1 0 1, all_to_all of 4 f32, 16"}));
  CHECK(lines[2] == with({"2@2:2>0#1 2 1 0, send of a message of 4 f32, 16"}));
}

TEST_CASE(
    "noted: a call that has not ended is under way, and whom it waits for is known of messages") {
  const auto ledger = std::make_shared<Ledger>();
  std::atomic<bool> looked = false;
  (void)on_ranks(2, [&](Comm<Cpu>& world, Cpu& dev) {
    auto x = Tensor<Cpu>::zeros(dev, DType::f32, Shape{4});
    if (world.rank() == 1) {
      while (ledger->under_way().empty()) sleep_ms(1);
      const auto entry = ledger->under_way().front();
      CHECK(entry.shown() == "recv of a message of 4 f32");
      CHECK(entry.waits_for == std::vector<int>{1});
      looked = true;
      world.send(dev, x.share(), 0);
      return 0;
    }
    auto comm = Comm<Cpu>::of(NotedComm(world, ledger));
    comm.recv(dev, x.mut(), 1);
    return 0;
  });
  CHECK(looked);
  CHECK(ledger->under_way().empty());
}

TEST_CASE("noted: an exception ends a call") {
  const auto ledger = std::make_shared<Ledger>();
  CHECK(contains(message_of([&] {
                   run_ranks(2, [&](Comm<Cpu> world) {
                     Cpu dev;
                     if (world.rank() == 1) fail("out of paper");
                     auto comm = Comm<Cpu>::of(NotedComm(std::move(world), ledger));
                     comm.barrier();
                   });
                 }),
                 "out of paper"));
  REQUIRE(ledger->ended().size() == 1);
  CHECK(ledger->last().failed);
}

}  // namespace
