// Turn: one at a time, and what is moved is given back once.
#include <dhp/comm/turn.hpp>
#include <tests/support/tensors.hpp>

#include <doctest/doctest.h>

#include <optional>

namespace {

using namespace dhp;

TEST_CASE("turn: a second one is refused until the first is over") {
  std::atomic<bool> taken = false;
  std::optional<Turn> kept;
  {
    Turn first(taken, "all_reduce", CallSite::current());
    kept.emplace(std::move(first));
  }
  const auto sentence =
      tests::message_of([&] { return Turn(taken, "barrier", CallSite::current()); });
  CHECK(sentence.find("barrier at turn.cpp:") == 0);
  CHECK(sentence.find("another thread of this rank is using the communicator") !=
        std::string::npos);
  CHECK(taken);
  kept.reset();
  CHECK_FALSE(taken);
  const Turn again(taken, "barrier", CallSite::current());
}

}  // namespace
