// The event files for TensorBoard. The reader here shares only the checksum with the writer.
#include <examples/report/event_file.hpp>
#include <tests/comm/ranks.hpp>
#include <tests/support/folder.hpp>

namespace {

using namespace examples;

std::uint64_t little_endian(const std::string& bytes, std::size_t at, int count) {
  std::uint64_t value = 0;
  for (int byte = count; byte-- > 0;)
    value = value << 8 | static_cast<unsigned char>(bytes.at(at + static_cast<std::size_t>(byte)));
  return value;
}
/// Returns the data of each record; checks both checksums.
std::vector<std::string> records_of(const std::string& file) {
  const auto checksum_matches = [](const std::string& data, std::uint64_t masked) {
    const auto moved = static_cast<std::uint32_t>(masked) - 0xa282ead8u;
    return detail::crc32c(std::as_bytes(std::span(data))) == (moved >> 17 | moved << 15);
  };
  std::vector<std::string> found;
  for (std::size_t at = 0; at < file.size();) {
    const auto length = little_endian(file, at, 8);
    REQUIRE(checksum_matches(file.substr(at, 8), little_endian(file, at + 8, 4)));
    found.push_back(file.substr(at + 12, length));
    REQUIRE(found.back().size() == length);
    REQUIRE(checksum_matches(found.back(), little_endian(file, at + 12 + length, 4)));
    at += 16 + length;
  }
  return found;
}
/// Returns the fields of a message by number: the bits of varints and fixed numbers, the bytes of all others.
std::multimap<int, std::string> fields_of(const std::string& message) {
  std::multimap<int, std::string> fields;
  std::size_t at = 0;
  const auto varint = [&] {
    std::uint64_t value = 0;
    for (int bits = 0;; bits += 7) {
      const auto byte = static_cast<unsigned char>(message.at(at++));
      value |= static_cast<std::uint64_t>(byte & 127u) << bits;
      if (byte < 128) return value;
    }
  };
  while (at < message.size()) {
    const auto key = varint();
    std::size_t size = 0;
    switch (key & 7u) {
      case 0: fields.emplace(key >> 3, std::to_string(varint())); continue;
      case 1: size = 8; break;
      case 2: size = varint(); break;
      case 5: size = 4; break;
      default: FAIL("no such type of field");
    }
    fields.emplace(key >> 3, message.substr(at, size));
    REQUIRE(message.size() >= at + size);
    at += size;
  }
  return fields;
}
std::string field(const std::string& message, int number) {
  const auto fields = fields_of(message);
  const auto at = fields.find(number);
  return at == fields.end() ? "none" : at->second;
}

TEST_CASE("event file: version, scalars and text are written at once") {
  const Folder folder;
  CHECK(EventFile::last_in(folder / "deeper") == 0);
  EventFile events(folder / "deeper", 0);
  CHECK(EventFile::last_in(folder / "deeper") > 0);
  const auto file = std::filesystem::directory_iterator(folder / "deeper")->path().string();
  CHECK(records_of(dhp::text_of(file)).size() == 2);
  events.scalars(300, {{"train/loss", 2.5}, {"train/lr", 1e-3}});
  CHECK(records_of(dhp::text_of(file)).size() == 3);
  const auto markdown = "# Options\n" + std::string(150, 'x');
  events.text(0, "options", markdown);
  const auto records = records_of(dhp::text_of(file));
  REQUIRE(records.size() == 4);
  CHECK(field(records[0], 3) == "brain.Event:2");

  CHECK(field(records[2], 2) == "300");
  double wall_s = 0;
  REQUIRE(field(records[2], 1).size() == sizeof wall_s);
  std::memcpy(&wall_s, field(records[2], 1).data(), sizeof wall_s);
  CHECK(wall_s > 1.6e9);
  std::map<std::string, float> scalars;
  for (const auto& [number, value] : fields_of(field(records[2], 5))) {
    REQUIRE(number == 1);
    std::memcpy(&scalars[field(value, 1)], field(value, 2).data(), sizeof(float));
  }
  CHECK(scalars == std::map<std::string, float>{{"train/loss", 2.5f}, {"train/lr", 1e-3f}});

  const auto value = field(field(records[3], 5), 1);
  CHECK(field(value, 1) == "options");
  CHECK(field(field(value, 8), 1) == "7");
  CHECK(field(field(field(field(value, 8), 2), 2), 1) == "1");
  CHECK(field(field(value, 8), 8) == markdown);
  CHECK(field(field(field(value, 9), 1), 1) == "text");
}

TEST_CASE(
    "event file: a resumed run has a later file with its first step, whatever the clock says") {
  const Folder folder;
  dhp::replace_file(folder / "events.out.tfevents.9000000000.500000.ahead.1", "");
  const EventFile after(folder.path, 8);
  auto files = folder.files();
  std::sort(files.begin(), files.end());
  REQUIRE(files.size() == 2);
  const auto records = records_of(dhp::text_of(files[1]));
  REQUIRE(records.size() == 2);
  CHECK(field(records[1], 2) == "8");
  CHECK(field(field(records[1], 7), 1) == "1");
}

TEST_CASE("event file: a directory that cannot be made is an error") {
  const Folder folder;
  dhp::replace_file(folder / "file", "text");
  CHECK(has(message_of([&] { const EventFile events(folder / "file/in_it", 0); }),
            "cannot write --tensorboard"));
}

}  // namespace
