// TextCache: which tokens the file returns, which process makes it, and when it is made again.
#include <examples/data/text_cache.hpp>
#include <tests/bert/text_fixture.hpp>
#include <tests/support/folder.hpp>
#include <tests/support/threads.hpp>

using namespace examples;

namespace {

/// A cache in a folder, and counts of its use.
struct Used {
  tests::Folder folder;
  std::vector<std::string> lines{};
  std::atomic<int> result = 0;

  [[nodiscard]] TextCacheOptions options(nlohmann::json made_of = {{"file", 1}}) {
    return {.folder = folder.path + "/cache",
            .name = "text",
            .made_of = std::move(made_of),
            .log = [this](const std::string& sentence) { lines.push_back(sentence); }};
  }
  [[nodiscard]] TokenizedText get(const TextCacheOptions& options) {
    return TextCache(options).get([&] {
      ++result;
      return TokenizedText{vocabulary_text(vocabulary()), some_text()};
    });
  }
  [[nodiscard]] TokenizedText get() { return get(options()); }
  [[nodiscard]] static Vocabulary vocabulary() { return synthetic_vocabulary(40); }
};

void check_same(const TokenizedText& found) {
  CHECK(*found.tokens == *some_text());
  CHECK(found.words == vocabulary_text(Used::vocabulary()));
}

void write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

TEST_CASE("text cache: the text is tokenized once, and later reads are the same") {
  Used used;
  for (int time = 0; time < 3; ++time) check_same(used.get());
  CHECK(used.result == 1);
  CHECK(used.lines.empty());
  const auto found = used.get();
  std::filesystem::remove_all(used.folder.path);  // the tokens stay mapped
  check_same(found);
  TokenText text = *found.tokens;
  const std::vector<std::int32_t> sentence{1};
  CHECK_THROWS_AS(text.add_sentence(sentence), dhp::Error);
}

TEST_CASE("text cache: a change of its description or of its files replaces it") {
  Used used;
  (void)used.get();
  check_same(used.get(used.options({{"file", 2}})));
  CHECK(used.result == 2);
  check_same(used.get(used.options({{"file", 2}})));
  CHECK(used.result == 2);
  for (int time = 0; time < 2; ++time)
    check_same(used.get(used.options({{"a name that is no UTF-8", "\xFF"}})));
  CHECK(used.result == 3);
  CHECK(used.lines.empty());

  const auto path = used.folder.path + "/a.txt";
  write(path, "a cat");
  const auto before = state_of_files({path});
  CHECK(state_of_files({path}) == before);
  write(path, "a bat");  // the new text has the same size
  std::filesystem::last_write_time(
      path, std::filesystem::last_write_time(path) + std::chrono::milliseconds(1));
  CHECK(state_of_files({path}) != before);
}

TEST_CASE("text cache: a damaged file is noticed and replaced") {
  Used used;
  (void)used.get();
  const auto path = TextCache(used.options()).path();
  const auto good = dhp::text_of(path);
  const auto damaged = [&](const std::string& bytes) {
    used.result = 0;
    used.lines.clear();
    write(path, bytes);
    check_same(used.get());
    CHECK(used.result == 1);
    REQUIRE(used.lines.size() == 1);
    CHECK(used.lines[0].find("warning: " + path + " is ") == 0);
    CHECK(has(used.lines[0], "; it is made anew"));
    CHECK(dhp::text_of(path) == good);
  };
  for (std::size_t at = 0; at < good.size(); at += at < 200 ? 3 : good.size() / 20) {
    CAPTURE(at);
    auto bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ 4);
    damaged(bytes);
  }
  for (std::size_t length = 0; length < good.size(); length += good.size() / 20) {
    CAPTURE(length);
    damaged(good.substr(0, length));
  }
  damaged(good + "x");
}

TEST_CASE("text cache: a folder that cannot be written to gives one warning") {
  Used used;
  write(used.folder.path + "/cache", "no folder");
  check_same(used.get());
  CHECK(used.result == 1);
  REQUIRE(used.lines.size() == 1);
  CHECK(used.lines[0].find("warning: cannot make the directory " + used.folder.path + "/cache") ==
        0);
  CHECK(has(used.lines[0], "; the text is tokenized without a cache"));
}

TEST_CASE("text cache: of several processes one tokenizes while the others wait") {
  Used used;
  std::atomic<int> same = 0;
  on_threads(4, [&](std::size_t) {  // file locks do not tell threads apart
    auto options = used.options();
    options.log = [](const std::string&) {};
    const auto found = TextCache(options).get([&] {
      ++used.result;
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      return TokenizedText{vocabulary_text(Used::vocabulary()), some_text()};
    });
    same += *found.tokens == *some_text() ? 1 : 0;
  });
  CHECK(used.result == 1);
  CHECK(same == 4);
}

TEST_CASE("text cache: waiting has a time limit, and a failed attempt leaves no file") {
  Used used;
  CHECK_THROWS_AS(
      (void)TextCache(used.options()).get([]() -> TokenizedText { dhp::fail("no such text"); }),
      dhp::Error);
  {
    dhp::detail::FileLock other(TextCache(used.options()).path() + ".lock");
    REQUIRE(other.try_lock());
    auto options = used.options();
    options.wait_s = 0.1;
    check_same(used.get(options));
    CHECK(used.result == 1);
    REQUIRE(used.lines.size() == 2);
    CHECK(used.lines[0].find("waits for another process, which is making ") == 0);
    CHECK(used.lines[1].find("warning: another process has been making ") == 0);
  }
  check_same(used.get());
  check_same(used.get());
  CHECK(used.result == 2);
}

}  // namespace
