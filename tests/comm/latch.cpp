#include <dhp/comm/latch.hpp>
#include <tests/comm/ranks.hpp>

TEST_CASE("latch: the first end counts; listeners hear of ends and of finished ranks") {
  Latch latch;
  int calls = 0, ends = 0;
  const auto handle = latch.on_change([&] { ++calls, ends += latch.ended() ? 1 : 0; });
  {
    const auto gone = latch.on_change([&] { calls += 100; });
  }
  CHECK(!latch.has_finished(3));
  latch.finish(3);
  CHECK(latch.has_finished(3));
  CHECK(!latch.has_finished(2));
  CHECK(calls == 1);
  latch.check_alive();
  latch.abort("out of paper");
  latch.abort("too late");
  CHECK(latch.ended());
  CHECK(calls == 2);
  CHECK(ends == 1);
  const auto late = latch.on_change([&] { ++calls; });  // called at once
  CHECK(calls == 3);
  CHECK_THROWS_AS(latch.check_alive(), Aborted);
  CHECK(message_of([&] { latch.check_alive(); }) == "out of paper");
  Latch other;
  CHECK(message_of([&] { other.lost(2, "reset by peer"); }) ==
        "the connection to rank 2 has broken (reset by peer)");
}
