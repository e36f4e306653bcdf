// TFRecord shards of tf.Examples: labels, positions of images, damage.
#include <dhp/data/tfrecord.hpp>

#include "shards.hpp"

namespace {

dhp::detail::ShardScan scan(const std::string& contents, bool skip_bad = false) {
  const Folder folder;
  dhp::detail::ShardScan result{.skip_bad = skip_bad};
  dhp::detail::scan_tfrecord(folder.write("a.tfrecord", bytes_of(contents)), result);
  return result;
}

TEST_CASE("tfrecord: the image of each record is found, and its label") {
  const std::string first = record(imagenet("TOY1", 3, "one.toy"));
  const std::string second = record(imagenet(std::string(5000, 'x'), 7, "two.toy"));
  const auto found = scan(first + second);
  REQUIRE(found.samples.size() == 2);
  CHECK(found.samples[0].label == 3);
  CHECK(found.samples[0].bytes == 4);
  CHECK((first + second).substr(found.samples[0].at, 4) == "TOY1");
  CHECK(found.samples[0].at - found.samples[0].before == 12);
  CHECK(found.samples[0].at + 4 + found.samples[0].after + 4 == first.size());
  CHECK(found.samples[1].bytes == 5000);
  CHECK((first + second)[found.samples[1].at] == 'x');
  CHECK(found.samples[1].label == 7);
}

TEST_CASE("tfrecord: other feature names and unpacked numbers are read, by priority") {
  const auto label_of = [&](const std::string& entries) {
    return scan(record(example(entries))).samples.at(0);
  };
  CHECK(label_of(entry("image", bytes_feature("TOYa")) + entry("label", int_feature(5, false)))
            .label == 5);
  const auto list = field(3, std::string("\x0a\x02\x01\x00", 4));
  const auto both = label_of(entry("label", list) + entry("image/class/label", int_feature(2)) +
                             entry("image/encoded", bytes_feature("TOYab")) +
                             entry("image", bytes_feature("TOY")));
  CHECK(both.label == 2);
  CHECK(both.bytes == 5);
}

TEST_CASE("tfrecord: errors name the byte") {
  const auto check_error = [&](const std::string& contents, const char* sentence) {
    CHECK_THROWS_WITH_AS(scan(contents), Contains(sentence), dhp::Error);
  };
  const auto good = record(imagenet("TOY1", 3, "one.toy"));
  const auto next = dhp::concat("byte ", good.size(), ": ");
  check_error(good + good.substr(0, 14),
              (next + "the file ends in the middle of a record").c_str());
  check_error(good + good.substr(0, good.size() - 1), (next + "a record of").c_str());
  auto bad = good;
  bad[2] ^= 1;
  check_error(good + bad, (next + "the checksum of a record's length is wrong").c_str());
  check_error(bad, "not a TFRecord, or damaged");
  check_error("\x1f\x8b\x08 and so on, as gzip writes",
              "is compressed by gzip (gunzip unpacks it); samples");
  check_error(record(example(entry("height", int_feature(1)))),
              "its features are height; --skip-bad");
  check_error(record(example(entry("image", bytes_feature("TOY1")))),
              "without image/class/label or label");
  check_error(record("words"), "a.tfrecord, byte ");
  for (const std::string& list :
       {std::string("\x0a\x02\x01\x00", 4), std::string("\x08\x01\x08\x00", 4)})
    check_error(
        record(example(entry("image", bytes_feature("TOY1")) + entry("label", field(3, list)))),
        "its label has several values");
  check_error("<html>404</html>", "byte 0: is an HTML page");
  // A number without an end, a field longer than its message, and a group are no fields of a tf.Example.
  check_error(record(std::string(12, '\xff')), "too many bytes");
  check_error(record("\x0a\x7fwords"), "a field of 127 bytes in a record with 5 left");
  check_error(record("\x0b"), "is not a tf.Example");
}

TEST_CASE("tfrecord: damaged records are skipped and counted, the others kept") {
  const auto good = record(imagenet("TOY1", 3, "one.toy"));
  const auto found = scan(good + record("words") + good + good.substr(0, 20), true);
  CHECK(found.samples.size() == 2);
  CHECK(found.skipped.size() == 2);
  CHECK(scan(good.substr(0, 30), true).samples.empty());
}

TEST_CASE("tfrecord: truncated files and flipped bytes are read or refused") {
  const Folder folder;
  const auto parse = [&](const dhp::Bytes& bytes, const std::string& name) {
    const auto path = folder.write(name, bytes);
    dhp::detail::ShardScan result;
    dhp::detail::scan_tfrecord(path, result);
    dhp::check(!result.samples.empty(), "", name, ": nothing");
  };
  check_damage(parse, bytes_of(record(imagenet("TOY1", 3, "one.toy"))), 300);
}

}  // namespace
