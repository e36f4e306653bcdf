#include <dhp/comm/threads/wait_word.hpp>

#include <doctest/doctest.h>

#include <thread>

namespace {

using dhp::comm::WaitWord;

TEST_CASE("wait word: counts changes, and the end is none") {
  WaitWord word;
  const auto start = word.read();
  CHECK(!WaitWord::ended(start));
  word.change();
  CHECK(WaitWord::changed(start, word.read()));
  const auto before = word.read();
  word.end();
  CHECK(WaitWord::ended(word.read()));
  CHECK(!WaitWord::changed(before, word.read()));
  CHECK(!word.change_unless_ended());
  CHECK(!WaitWord::changed(before, word.read()));
  word.change();  // what was under way may still finish
  CHECK(WaitWord::changed(before, word.read()));
  CHECK(WaitWord::ended(word.read()));
}

TEST_CASE("wait word: a change wakes who waits") {
  WaitWord word;
  const auto before = word.read();
  int value = 0;
  std::thread other([&] {
    value = 1;
    word.change();
  });
  word.wait(before);
  CHECK(value == 1);
  other.join();
}

}  // namespace
