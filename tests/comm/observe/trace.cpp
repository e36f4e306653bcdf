#include <dhp/comm/observe/trace.hpp>
#include <dhp/comm/progress.hpp>
#include <dhp/comm/rendezvous/key_value_store.hpp>
#include <tests/comm/ranks.hpp>

namespace {

Comm<Cpu> traced(Cpu& dev, Comm<Cpu> world) {
  auto tracing = std::make_shared<CallTracing<Cpu>>(dev, world);
  return observe<Cpu>(std::move(world), std::move(tracing));
}
// The spans of each of n ranks.
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

TEST_CASE("trace: every call has a span in the track of its communicator, and a wait of its rank") {
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
    const std::vector<std::int64_t> bytes{16, 32, 16, 16, 16, 16, 0};
    const std::vector<int> tracks{0, 0, 1, 1, 1, 0, 0};
    REQUIRE(spans.size() == names.size());
    REQUIRE(waits.size() == names.size());
    for (std::size_t at = 0; at < names.size(); ++at) {
      CHECK(spans[at].name == names[at]);
      CHECK(spans[at].bytes == bytes[at]);
      CHECK(spans[at].track == tracks[at]);
      CHECK(to_text(spans[at].where).starts_with("trace.cpp:"));
      CHECK(waits[at].name == names[at]);
      CHECK(waits[at].start.seconds() == spans[at].start.seconds());
      CHECK(waits[at].duration_s() >= 0);
    }
  }
}

TEST_CASE("trace: tracks are named by the world ranks in them") {
  const auto names = on_ranks(4, [](Comm<Cpu>& world, Cpu&) {
    Cpu dev({.trace = std::make_shared<Trace>()});
    auto comm = traced(dev, world);
    auto odd = comm.split(world.rank() % 2, -world.rank());
    auto again = odd.split(0, odd.rank());
    for (auto* group : {&again, &comm}) group->barrier();
    return dev.trace()->tracks();
  });
  for (std::size_t rank = 0; rank < 4; ++rank)
    CHECK(names[rank] ==
          std::vector<std::string>{concat("group 3: ranks ", rank % 2, " and ", rank % 2 + 2),
                                   "group 1: ranks 0, 1, 2 and 3"});
}

TEST_CASE("trace: an overlapped collective counts as a wait only in its event's wait") {
  constexpr double sleep_s = 0.2;
  const auto seen = [] {
    const auto all = spans_of(2, [](Comm<Cpu>& world, Cpu& dev) {
      Progress<Cpu> progress(world);
      auto x = Tensor<Cpu>::zeros(dev, DType::f32, Shape{4});
      const auto early = progress.start(dev, Collective<Cpu>::all_reduce(x.mut()));
      sleep_ms(1e3 * sleep_s);  // the collective is done meanwhile
      early.wait(dev);
      if (world.rank() == 1) sleep_ms(1e3 * sleep_s);
      const auto late = progress.start(dev, Collective<Cpu>::all_reduce(x.mut()));
      late.wait(dev);  // rank 0 waits for rank 1
    });
    bool correct = true;
    for (std::size_t rank = 0; rank < 2; ++rank) {
      const auto spans = only(TraceKind::communication, all[rank]);
      auto waits = only(TraceKind::wait, all[rank]);
      REQUIRE(spans.size() == 2);
      REQUIRE(waits.size() == 2);
      CHECK(waits[0].name == "all_reduce");
      correct = correct && waits[0].duration_s() < sleep_s / 2;
      if (rank == 0)
        correct =
            correct && waits[1].duration_s() > sleep_s / 2 && spans[1].duration_s() > sleep_s / 2;
    }
    return correct;
  };
  CHECK(dhp::detail::poll_until(seen,
                                hang_s));  // on a busy machine, the other rank may be late
}

}  // namespace
