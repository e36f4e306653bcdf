// Images of shards through an index: made once, remade if a shard changes, shared by processes; damage.
#include <dhp/data/find_shards.hpp>
#include <dhp/data/shard_images.hpp>
#include <tests/support/threads.hpp>

#include "shards.hpp"

namespace {

static_assert(dhp::Dataset<dhp::ShardImages>);

std::string records(std::initializer_list<std::pair<char, int>> samples) {
  std::string result;
  for (const auto& [letter, label] : samples)
    result += record(imagenet(std::string("TOY") + letter, label, std::string(1, letter) + ".toy"));
  return result;
}
std::string tar(std::initializer_list<std::pair<char, int>> samples) {
  std::string result;
  for (const auto& [letter, label] : samples)
    result += member(std::string(1, letter) + ".toy", std::string("TOY") + letter) +
              member(std::string(1, letter) + ".cls", std::to_string(label));
  return result + tar_end;
}
dhp::ShardImages open(const std::string& path, const dhp::ShardOptions& options = {}) {
  return {dhp::find_shards(path).train, toy_decoders(), options};
}
std::string letters(const dhp::ShardImages& images) {
  std::string result;
  for (std::int64_t index = 0; index < images.size(); ++index) {
    const auto sample = images.get(index);
    result += static_cast<char>(sample.image.pixels[0]);
    result += std::to_string(sample.label);
  }
  return result;
}

TEST_CASE("shard images: both formats are read, in several shards, with labels from 0 or 1") {
  const Folder folder;
  folder.write("t/train-00001-of-00002", bytes_of(records({{'c', 1}, {'d', 3}})));
  folder.write("t/train-00000-of-00002", bytes_of(records({{'a', 2}, {'b', 1}})));
  folder.write("w/0.tar", bytes_of(tar({{'x', 0}, {'y', 2}})));
  const auto images = open(folder / "t", {.threads = 2});
  CHECK(letters(images) == "a1b0c0d2");
  CHECK(images.classes() == 3);
  CHECK(images.first_label() == 1);
  CHECK(images.bytes_read() > 16);
  CHECK(letters(open(folder / "t", {.first_label = 0})) == "a2b1c1d3");
  CHECK(letters(open(folder / "w/*.tar")) == "x0y2");
  CHECK_THROWS_WITH_AS(open(folder / "w", {.first_label = 1}),
                       Contains("its label is 0, but labels count from 1"), dhp::Error);
}

TEST_CASE("shard images: the index is reused until it or a shard changes") {
  const Folder folder;
  const auto shard = folder.write("s/0.tar", bytes_of(tar({{'a', 0}})));
  CHECK(!open(folder / "s").index_was_kept());
  CHECK(open(folder / "s").index_was_kept());
  CHECK(letters(open(folder / "s")) == "a0");
  CHECK(open(folder / "s").left_out_text().empty());
  const auto before = std::filesystem::last_write_time(shard);
  folder.write("s/0.tar", bytes_of(tar({{'b', 0}, {'c', 3}})));
  std::filesystem::last_write_time(shard, before);  // only the size has changed
  CHECK(letters(open(folder / "s")) == "b0c3");
  folder.write("s/0.tar", bytes_of(tar({{'b', 0}, {'d', 1}})));
  std::filesystem::last_write_time(shard, before + std::chrono::seconds(1));  // only the time
  CHECK(letters(open(folder / "s")) == "b0d1");
  const auto index = dhp::ShardImages::index_path({dhp::detail::ShardFile::inspect(shard)}, "");
  auto bytes = dhp::read_file(index);
  bytes[bytes.size() / 2] ^= std::byte{1};
  folder.write("s/" + index.substr(index.rfind('/') + 1), bytes);
  CHECK(!open(folder / "s").index_was_kept());
  CHECK(open(folder / "s").index_was_kept());
  const auto parse = [](const dhp::Bytes& damaged, const std::string& name) {
    const std::string_view text(reinterpret_cast<const char*>(damaged.data()), damaged.size());
    check(dhp::detail::ShardIndex::parse(text).has_value(), name, ": damaged");
  };
  check_damage(parse, dhp::read_file(index), 100);
}

TEST_CASE("shard images: the index may be elsewhere, and a failure to write it is reported") {
  const Folder folder;
  folder.write("a/0.tar", bytes_of(tar({{'a', 0}})));
  folder.write("b/0.tar", bytes_of(tar({{'b', 0}})));
  for (const auto* name : {"a", "b"}) {
    const auto images = open(folder / name, {.index_folder = folder / "index/deep"});
    CHECK(letters(images) == std::string(name) + "0");
    CHECK(images.index_error().empty());
  }
  CHECK(open(folder / "a", {.index_folder = folder / "index/deep"}).index_was_kept());
  folder.write("file", bytes_of("in the way"));
  const auto images = open(folder / "a", {.index_folder = folder / "file"});
  CHECK(letters(images) == "a0");
  CHECK(has(images.index_error(), "file"));
}

TEST_CASE("shard images: concurrent opens make one index") {
  const Folder folder;
  folder.write("s/0.tar", bytes_of(tar({{'a', 0}, {'b', 1}})));
  std::vector<int> kept(6);
  on_threads(kept.size(),
             [&](std::size_t at) { kept[at] = open(folder / "s").index_was_kept() ? 1 : 0; });
  CHECK(std::count(kept.begin(), kept.end(), 0) == 1);
}

TEST_CASE("shard images: a damaged record is named, or left out when the index is made") {
  const Folder folder;
  auto contents = records({{'a', 1}, {'b', 1}});
  const auto at = contents.find("TOYb");
  contents[at + 3] = 'x';
  contents += record(imagenet("TOYS", 2, "long.toy")) + record(imagenet("TOYlong", 2, "long.toy"));
  folder.write("s/0.tfrecord", bytes_of(contents));
  folder.write("s/1.tar", bytes_of(member("k.toy", "word") + member("k.cls", "1") + tar_end));
  const auto images = open(folder / "s");
  const auto check_error = [&](std::int64_t index, const std::string& sentence) {
    CHECK_THROWS_WITH_AS((void)images.get(index), Contains(sentence.c_str()), dhp::Error);
  };
  check_error(1, dhp::concat("s/0.tfrecord, byte ", at, ": the checksum of its record is wrong"));
  check_error(1, "its key is b.toy; --skip-bad leaves out");
  check_error(3, ": damaged toy; its key is long.toy; --skip-bad");
  check_error(4, "s/1.tar, byte 512: no image; this program reads .toy; its key is k.toy");
  const auto good = open(folder / "s", {.skip_bad = true, .threads = 2});
  CHECK(letters(good) == "a0S1");
  REQUIRE(good.skipped().size() == 3);
  CHECK(has(good.skipped()[2], "1.tar, byte 512"));
  CHECK(open(folder / "s", {.skip_bad = true}).index_was_kept());
  CHECK(open(folder / "s", {.skip_bad = true}).skipped() == good.skipped());
  CHECK(open(folder / "s").size() == 5);  // the index without damaged parts is not reused
}

TEST_CASE("shard images: a shard truncated after its index was made is an error") {
  const Folder folder;
  const auto path = folder.write("s/0.tfrecord", bytes_of(records({{'a', 0}, {'b', 0}})));
  const auto images = open(folder / "s");
  std::filesystem::resize_file(path, 100);
  CHECK_THROWS_WITH_AS((void)images.get(1), Contains("0.tfrecord at byte"), dhp::Error);
  std::filesystem::resize_file(path, 0);
  CHECK_THROWS_WITH_AS(open(folder / "s"), Contains("0.tfrecord: the shard is empty"), dhp::Error);
  folder.write("s/1.tfrecord", bytes_of(records({{'c', 0}})));
  const auto good = open(folder / "s", {.skip_bad = true});
  CHECK(letters(good) == "c0");
  CHECK(has(good.skipped().at(0), "0.tfrecord: the shard is empty"));
  CHECK_THROWS_WITH_AS(open(folder / "none"), Contains("there is no shard"), dhp::Error);
}

TEST_CASE("find shards: training and held-out shards are found by common names") {
  const Folder folder;
  for (const auto* name :
       {"train-00000-of-00002", "train-00001-of-00002", "validation-00000-of-00001", "notes.txt",
        "train-00000-of-00002.idx", "king-of-cats", ".hidden.tar", "dhp-index-1234"})
    folder.write(std::string("a/") + name, bytes_of("?"));
  for (const auto* name : {"000001.tar", "000000.tar", "labels.json", "000000.tar.md5"})
    folder.write(std::string("b/") + name, bytes_of("?"));
  for (const auto* name : {"flowers-test.tfrecord-00000-of-00001", "A.TAR", "b.TFRecord", "c.tgz"})
    folder.write(std::string("c/") + name, bytes_of("?"));
  const auto both = dhp::find_shards(folder / "a");
  CHECK(both.train ==
        std::vector{folder / "a/train-00000-of-00002", folder / "a/train-00001-of-00002"});
  CHECK(both.held_out == std::vector{folder / "a/validation-00000-of-00001"});
  CHECK(dhp::find_shards(folder / "b").train ==
        std::vector{folder / "b/000000.tar", folder / "b/000001.tar"});
  CHECK(dhp::find_shards(folder / "c").train.size() == 4);
  CHECK(dhp::find_shards(folder / "b/0*1.tar").train == std::vector{folder / "b/000001.tar"});
  CHECK(dhp::find_shards(folder / "b/000000.tar").train.size() == 1);
  CHECK(dhp::find_shards(folder / "a/*").train.size() == 3);
  CHECK(dhp::find_shards(folder / "a/*").held_out.size() == 1);
  CHECK(dhp::find_shards(folder / "b/labels.json").empty());
  CHECK(dhp::find_shards(folder / "none").empty());
}

}  // namespace
