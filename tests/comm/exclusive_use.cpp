#include <dhp/comm/exclusive_use.hpp>
#include <tests/comm/ranks.hpp>

#include <doctest/doctest.h>

namespace {

using namespace tests;
using dhp::comm::ExclusiveUse;

TEST_CASE("exclusive use: a second one is refused until the first is over") {
  std::atomic<bool> taken = false;
  std::optional<ExclusiveUse> kept;
  {
    ExclusiveUse first(taken, CallKind::all_reduce, CallSite::current());
    kept.emplace(std::move(first));
  }
  const auto sentence =
      message_of([&] { return ExclusiveUse(taken, CallKind::barrier, CallSite::current()); });
  CHECK(sentence.starts_with("barrier at exclusive_use.cpp:"));
  CHECK(contains(sentence, "another thread of this rank is using the communicator"));
  CHECK(taken);
  kept.reset();
  CHECK_FALSE(taken);
  const ExclusiveUse again(taken, CallKind::barrier, CallSite::current());
}

}  // namespace
