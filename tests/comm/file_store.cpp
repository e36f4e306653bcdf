// Files between processes: whole, of this scope, and written by who knows the secret.
#include <dhp/comm/file_store.hpp>
#include <tests/comm/folder.hpp>
#include <tests/comm/stores.hpp>

#include <fstream>

namespace {

using namespace tests;
namespace fs = std::filesystem;

TEST_CASE("file store: it does what every store does, with a secret and without") {
  const Folder place;
  for (const auto& word : {secret, std::string()}) {
    FileStore store(place.path, "scope", word);
    check_store(store);
    CHECK(place.files().empty());
    CHECK(store.description() == "store in the folder " + place.path);
  }
}

TEST_CASE("file store: others may not read, scopes are apart, and files can be gone in the end") {
  const Folder place;
  {
    FileStore monday(place.path, "monday", secret), tuesday(place.path, "tuesday", secret);
    monday.set("a", "1");
    CHECK(!tuesday.find("a"));
    CHECK(tuesday.list("").empty());
    tuesday.set("a", "2");
    CHECK(monday.find("a").value() == "1");
    CHECK(place.files().size() == 2);
    for (const auto& file : place.files()) CHECK(fs::status(file).permissions() == fs::perms(0600));
    monday.remove_at_end();
  }
  CHECK(place.files().size() == 1);
  CHECK(FileStore(place.path, "tuesday", secret).find("a").value() == "2");
}

TEST_CASE("file store: what was not written with the secret, or under that key, is not there") {
  const Folder place;
  FileStore store(place.path, "scope", secret);
  FileStore(place.path, "scope", "another secret").set("a", "forged");
  FileStore(place.path, "scope", "").set("b", "forged");
  CHECK(!store.find("a"));
  CHECK(!store.find("b"));
  CHECK(store.list("").empty());
  store.set("a", "good");
  const auto files = place.files();
  // Every bit of a file counts, and so does its end.
  for (const auto& path : files) {
    if (!contains(path, "-a.")) continue;
    std::ifstream in(path, std::ios::binary);
    const std::string whole{std::istreambuf_iterator<char>(in), {}};
    const auto becomes = [&](const std::string& bytes) {
      std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
      return store.find("a").value_or("nothing");
    };
    for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
      auto changed = whole;
      changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
      CHECK(becomes(changed) == "nothing");
    }
    for (std::size_t size = 0; size < whole.size(); ++size)
      CHECK(becomes(whole.substr(0, size)) == "nothing");
    CHECK(becomes(whole + "x") == "nothing");
    CHECK(becomes(whole) == "good");
    // Under the name of another key, as a link, as a folder.
    store.set("b", "other");
    for (const auto& other : place.files())
      if (contains(other, "-b.")) {
        fs::copy_file(path, other, fs::copy_options::overwrite_existing);
        CHECK(!store.find("b"));
        CHECK(store.list("").size() == 1);
        auto renamed = whole;
        renamed[hmac_bytes + 4] = 'b';  // the key
        std::ofstream(other, std::ios::binary | std::ios::trunc) << renamed;
        CHECK(!store.find("b"));
        fs::remove(other);
        fs::create_directory(other);
        CHECK(!store.find("b"));
        fs::remove(other);
        fs::rename(path, place.path + "/elsewhere");
        fs::create_symlink(place.path + "/elsewhere", path);
        CHECK(!store.find("a"));
      }
  }
}

TEST_CASE("file store: a reader sees the old value or the new one, never a part") {
  const Folder place;
  FileStore store(place.path, "scope", secret);
  const std::string a(100000, 'a'), b(50000, 'b');
  store.set("k", a);
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    FileStore mine(place.path, "scope", secret);
    for (int i = 0; !stop; ++i) mine.set("k", i % 2 == 0 ? b : a);
  });
  int wrong = 0;
  for (int i = 0; i < 200; ++i) {
    const auto value = store.find("k").value_or("nothing");
    wrong += value != a && value != b;
  }
  stop = true;
  writer.join();
  CHECK(wrong == 0);
}

TEST_CASE("file store: a folder that is none, or is gone") {
  CHECK(message_of([] { FileStore("/nowhere/at/all", "scope", ""); }) ==
        "the ranks cannot meet in /nowhere/at/all, which is no folder; see DHP_RENDEZVOUS");
  const Folder place;
  fs::create_directory(place.path + "/inner");
  FileStore store(place.path + "/inner", "scope", secret);
  store.set("a", "b");
  fs::remove_all(place.path + "/inner");
  CHECK_THROWS_AS(store.set("a", "b"), StoreLost);
  CHECK_THROWS_AS((void)store.find("a"), StoreLost);
  CHECK_THROWS_AS((void)store.list(""), StoreLost);
  CHECK_THROWS_AS(store.remove("a"), StoreLost);
}

}  // namespace
