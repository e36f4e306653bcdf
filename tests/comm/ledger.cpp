#include <dhp/comm/ledger.hpp>
#include <tests/comm/ranks.hpp>

#include <doctest/doctest.h>

namespace {

using namespace tests;

LedgerEntry entry(const std::string& operation, const std::string& what) {
  LedgerEntry made;
  made.operation = operation;
  made.what = what;
  made.where = CallSite::current();
  return made;
}

TEST_CASE("ledger: a call is under way, then the last one that ended") {
  Ledger ledger;
  CHECK(ledger.last().number == 0);
  {
    Ledger::Call outer(ledger, entry("barrier", "barrier"));
    {
      Ledger::Call inner(ledger, entry("recv", "message of 3 f32"));
      inner.waits_for(7);
      const auto open = ledger.under_way();
      REQUIRE(open.size() == 2);
      CHECK(open[0].number == 1);
      CHECK(open[0].under_way());
      CHECK(open[1].waits_for == std::vector<int>{7});
      CHECK(contains(to_text(open[0]), "barrier at ledger.cpp:"));
      CHECK(contains(to_text(open[1]), "recv of a message of 3 f32 at ledger.cpp:"));
      inner.waits_no_more();
      CHECK(ledger.under_way()[1].waits_for.empty());
    }
    CHECK(ledger.last().number == 2);
    CHECK(!ledger.last().under_way());
    CHECK(ledger.last().end_s >= ledger.last().start_s);
    CHECK(ledger.under_way().size() == 1);
  }
  CHECK(ledger.last().number == 1);
  CHECK(ledger.under_way().empty());
  CHECK(ledger.calls() == 2);
}

TEST_CASE("ledger: an exception ends the call") {
  Ledger ledger;
  try {
    const Ledger::Call call(ledger, entry("barrier", "barrier"));
    fail("no");
  } catch (const Error&) {}
  CHECK(ledger.under_way().empty());
  REQUIRE(ledger.ended().size() == 1);
  CHECK(ledger.ended()[0].failed);
  // A call that another exception leaves time for ends well.
  struct AtEnd {
    Ledger& ledger;
    ~AtEnd() { const Ledger::Call call(ledger, entry("barrier", "barrier")); }
  };
  try {
    const AtEnd leaves{ledger};
    fail("another reason");
  } catch (const Error&) {}
  CHECK(ledger.ended().size() == 2);
  CHECK(!ledger.last().failed);
}

TEST_CASE("ledger: remembers the last calls, and no more than it may") {
  Ledger ledger(3);
  for (int call = 0; call < 10; ++call) Ledger::Call(ledger, entry("barrier", "barrier"));
  const auto ended = ledger.ended();
  REQUIRE(ended.size() == 3);
  CHECK(ended.front().number == 8);
  CHECK(ended.back().number == 10);
}

TEST_CASE("ledger: threads of a rank share it") {
  Ledger ledger(100);
  std::vector<std::thread> threads;
  for (int each = 0; each < 4; ++each)
    threads.emplace_back([&] {
      for (int call = 0; call < 500; ++call) {
        Ledger::Call made(ledger, entry("send", "message of 1 f32"));
        made.waits_for(call);
        (void)ledger.under_way();
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(ledger.calls() == 2000);
  CHECK(ledger.under_way().empty());
  CHECK(ledger.ended().size() == 100);
}

TEST_CASE("ledger: calls on a device are counted by their series") {
  CHECK(series_of("nccl#12") == "nccl");
  CHECK(series_of("nccl.2@1:0>3#7") == "nccl.2@1:0>3");
  Ledger ledger;
  const auto begin = [&](const std::string& key, bool on_device) {
    LedgerEntry entry;
    entry.key = key;
    entry.on_device = on_device;
    return Ledger::Call(ledger, std::move(entry));
  };
  { const auto one = begin("nccl#1", true), host = begin("0@0#1", false); }
  const auto two = begin("nccl#2", true), message = begin("nccl:0>1#1", true);
  CHECK(ledger.begun_on_device() ==
        std::map<std::string, std::uint64_t>{{"nccl", 2}, {"nccl:0>1", 1}});
}

}  // namespace
