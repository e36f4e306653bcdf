// A change wakes whoever waits for it, with many threads, and beside work that keeps all cores busy.
#include <dhp/core/blocking_word.hpp>
#include <tests/support/test.hpp>

namespace {

/// Threads wait for each other's turn; returns how often the word has changed.
std::uint32_t turns(int threads, std::uint32_t rounds) {
  detail::BlockingWord word;
  const auto take_turns = [&](std::uint32_t mine) {
    for (std::uint32_t turn = mine; turn < rounds; turn += static_cast<std::uint32_t>(threads)) {
      for (auto now = word.load(); now != turn; now = word.load()) word.wait(now);
      word.add(1);
      word.notify_all();
    }
  };
  std::vector<std::thread> all;
  for (int thread = 0; thread < threads; ++thread)
    all.emplace_back(take_turns, static_cast<std::uint32_t>(thread));
  for (auto& thread : all) thread.join();
  return word.load();
}

TEST_CASE("blocking word: no change is missed") {
  for (const int threads : {1, 2, 5}) CHECK(turns(threads, 3000) == 3000);
}

TEST_CASE("blocking word: no change is missed beside other work") {
  std::atomic<bool> stop = false;
  std::vector<std::thread> others;
  for (unsigned core = 0; core < 2 * std::thread::hardware_concurrency(); ++core)
    others.emplace_back([&] {
      while (!stop) continue;
    });
  CHECK(turns(3, 300) == 300);
  stop = true;
  for (auto& other : others) other.join();
}

TEST_CASE("blocking word: bits and exchanges") {
  detail::BlockingWord word;
  word.set_bits(5);
  std::uint32_t seen = 4;
  CHECK(!word.exchange(seen, 7));
  CHECK(seen == 5);
  while (!word.exchange(seen, 7)) CHECK(seen == 5);
  CHECK(word.load() == 7);
  word.wait(5);  // has changed already
}

}  // namespace
