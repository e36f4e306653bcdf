#include <dhp/comm/progress.hpp>
#include <dhp/comm/traced.hpp>
#include <tests/comm/collectives.hpp>

#include <doctest/doctest.h>

#include <algorithm>

namespace {

using namespace tests;

Comm<Cpu> traced(Cpu& dev, Comm<Cpu> world) {
  return Comm<Cpu>::of(TracedComm<Cpu>(dev, std::move(world)));
}
// The spans of every rank of n.
template <class Body>
std::vector<std::vector<TraceSpan>> spans_of(int n, Body body) {
  return on_ranks(n, [&](Comm<Cpu>& world, Cpu&) {
    Cpu dev({.trace = std::make_shared<Trace>()});
    {
      auto comm = traced(dev, world);
      body(comm, dev);
    }
    return dev.trace()->spans();
  });
}
std::vector<TraceSpan> only(TraceKind kind, std::vector<TraceSpan> spans) {
  std::erase_if(spans, [&](const TraceSpan& span) { return span.kind != kind; });
  return spans;
}

TEST_CASE("traced: what is done is what was done before") {
  using Check = std::string (*)(Comm<Cpu>&, Cpu&);
  for (const Check check_one :
       {Check(wrong_all_reduce), Check(wrong_blocks), Check(wrong_broadcast), Check(wrong_laws),
        Check(wrong_messages), Check(wrong_rounds)})
    (void)spans_of(4, [&](Comm<Cpu>& world, Cpu& dev) {
      check(world.transport() == "threads of one process", world.transport());
      const auto wrong = check_one(world, dev);
      check(wrong.empty(), wrong);
    });
}

TEST_CASE("traced: every call has a span in the lane of its communicator, and a wait of its rank") {
  const auto all = spans_of(2, [](Comm<Cpu>& world, Cpu& dev) {
    auto x = Tensor<Cpu>::zeros(dev, DType::f32, Shape{4});
    auto two = Tensor<Cpu>::zeros(dev, DType::f32, Shape{8});
    auto part = world.split(0, world.rank());
    auto unused = world.split(0, world.rank());
    world.all_reduce(dev, x.mut()).wait(dev);
    world.reduce_scatter(dev, two.view(), x.mut()).wait(dev);
    part.all_gather(dev, x.view(), two.mut()).wait(dev);
    part.broadcast(dev, x.mut(), 1).wait(dev);
    part.all_to_all(dev, x.view(), two.mut().slice(0, 4)).wait(dev);
    if (world.rank() == 0) world.send(dev, x.share(), 1);
    else world.recv(dev, x.mut(), 0);
    world.barrier();
  });
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const auto spans = only(TraceKind::communication, all[rank]);
    const auto waits = only(TraceKind::wait, all[rank]);
    const std::vector<std::string> names{"all_reduce", "reduce_scatter",
                                         "all_gather", "broadcast",
                                         "all_to_all", rank == 0 ? "send" : "recv",
                                         "barrier"};
    const std::vector<std::int64_t> bytes{16, 32, 32, 16, 16, 16, 0};
    const std::vector<int> lanes{0, 0, 1, 1, 1, 0, 0};
    REQUIRE(spans.size() == names.size());
    REQUIRE(waits.size() == names.size());
    for (std::size_t at = 0; at < names.size(); ++at) {
      CHECK(spans[at].name == names[at]);
      CHECK(spans[at].bytes == bytes[at]);
      CHECK(spans[at].lane == lanes[at]);
      CHECK(to_text(spans[at].where).starts_with("traced.cpp:"));
      CHECK(waits[at].name == names[at]);
      CHECK(waits[at].start.seconds() == spans[at].start.seconds());
      CHECK(waits[at].duration_s() >= 0);
    }
  }
}

TEST_CASE("traced: lanes are named by the ranks of the world that are in them") {
  const auto names = on_ranks(4, [](Comm<Cpu>& world, Cpu&) {
    Cpu dev({.trace = std::make_shared<Trace>()});
    auto comm = traced(dev, world);
    auto odd = comm.split(world.rank() % 2, -world.rank());
    auto again = odd.split(0, odd.rank());
    for (auto* group : {&again, &comm}) group->barrier();
    return dev.trace()->lanes();
  });
  for (std::size_t rank = 0; rank < 4; ++rank)
    CHECK(names[rank] ==
          std::vector<std::string>{concat("group 3: ranks ", rank % 2, " and ", rank % 2 + 2),
                                   "group 1: ranks 0, 1, 2 and 3"});
}

TEST_CASE("traced: what overlaps is no wait until its event is waited for") {
  constexpr double sleep_s = 0.2;
  const auto all = spans_of(2, [](Comm<Cpu>& world, Cpu& dev) {
    Progress<Cpu> progress(world);
    auto x = Tensor<Cpu>::zeros(dev, DType::f32, Shape{4});
    const auto early = progress.all_reduce(dev, x.mut());
    sleep_ms(1e3 * sleep_s);  // it is done meanwhile
    early.wait(dev);
    if (world.rank() == 1) sleep_ms(1e3 * sleep_s);
    const auto late = progress.all_reduce(dev, x.mut());
    late.wait(dev);  // rank 0 waits for rank 1
  });
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const auto spans = only(TraceKind::communication, all[rank]);
    auto waits = only(TraceKind::wait, all[rank]);
    REQUIRE(spans.size() == 2);
    REQUIRE(waits.size() == 2);
    CHECK(waits[0].name == "all_reduce");
    CHECK(waits[0].duration_s() < sleep_s / 2);
    if (rank == 0) {
      CHECK(waits[1].duration_s() > sleep_s / 2);
      CHECK(spans[1].duration_s() > sleep_s / 2);
    }
  }
}

// A device that works by itself: its time is what the test says.
struct Streamed {
  static constexpr bool host_accessible = false;
  std::shared_ptr<Trace> given = std::make_shared<Trace>();
  double now_s = 0;
  const std::shared_ptr<Trace>& trace() const { return given; }
  TraceMoment moment() const { return now_s; }
};
struct Ordered final : Event<Streamed>::Work {
  explicit Ordered(Streamed& device) : dev(device) {}
  bool done() const override { return dev.now_s > 5; }
  void order() const override { dev.now_s += 2; }
  void order(Streamed&) const override { dev.now_s += 2; }
  Streamed& dev;
};

TEST_CASE(
    "traced: on a device that works by itself, the wait is where its work is ordered after it") {
  Streamed dev;
  dev.now_s = 1;
  TraceSpan span{.kind = TraceKind::communication, .name = "all_reduce", .start = dev.moment()};
  const Event<Streamed> event(std::make_shared<detail::TracedWork<Streamed>>(
      dev, Event<Streamed>(std::make_shared<Ordered>(dev)), span));
  dev.now_s = 4;
  CHECK(!event.done());
  event.wait(dev);
  CHECK(event.done());
  event.wait();  // once more tells nothing new
  const auto spans = dev.given->spans();
  REQUIRE(spans.size() == 2);
  CHECK(spans[0].kind == TraceKind::communication);
  CHECK(spans[0].start.seconds() == 1);
  CHECK(spans[0].end.seconds() == 6);
  CHECK(spans[1].kind == TraceKind::wait);
  CHECK(spans[1].start.seconds() == 4);
  CHECK(spans[1].end.seconds() == 6);
}

}  // namespace
