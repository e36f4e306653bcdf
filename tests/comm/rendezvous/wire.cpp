// Fields and frames are read completely or refused, for any bytes in pieces of any size.
#include <dhp/comm/rendezvous/wire.hpp>
#include <dhp/core/text.hpp>
#include <tests/support/test.hpp>

namespace {

using namespace dhp::detail;

TEST_CASE("fields: numbers and texts are read in the order written") {
  std::string bytes;
  append_number(bytes, 0x01020304);
  append_field(bytes, "");
  append_field(bytes, std::string("a\0b", 3));
  append_number(bytes, 0xffffffff);
  CHECK(bytes.substr(0, 4) == "\1\2\3\4");
  FieldReader fields(bytes);
  CHECK(fields.number().value() == 0x01020304);
  CHECK(fields.field().value().empty());
  CHECK(fields.field().value() == std::string("a\0b", 3));
  CHECK(!fields.empty());
  CHECK(fields.number().value() == 0xffffffff);
  CHECK(fields.empty());
  CHECK(!fields.number());
}

TEST_CASE("fields: truncated fields are refused") {
  std::string whole;
  append_field(whole, "abc");
  for (std::size_t size = 0; size < whole.size(); ++size)
    CHECK(!FieldReader(std::string_view(whole).substr(0, size)).field());
  CHECK(FieldReader(whole).field().value() == "abc");
  CHECK(!FieldReader("\xff\xff\xff\xff and so on").field());
  CHECK(!FieldReader("abc").bytes(4));
}

struct Named {
  std::string name;
  std::int64_t number = 0;
  static void visit(auto& self, auto&& field) {
    field("name", self.name);
    field("number", self.number);
  }
};

TEST_CASE("fields: a struct with visit() is read back, alone and in a list") {
  const auto bytes = Fields::written(std::vector{Named{"a", 1}, Named{"", -2}});
  const auto read = Fields::parsed<std::vector<Named>>(bytes).value();
  REQUIRE(read.size() == 2);
  CHECK(read[0].name == "a");
  CHECK(read[0].number == 1);
  CHECK(read[1].number == -2);
  CHECK(!Fields::parsed<Named>(bytes));
}

// Reads the bytes piece by piece. Returns "payload " of each frame, then the reason of a refusal.
std::string read(FrameReader& reader, const std::string& bytes, std::size_t piece) {
  std::string text;
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    reader.feed(std::string_view(bytes).substr(at, piece));
    while (const auto frame = reader.next()) text += *frame + " ";
  }
  return text + reader.refusal();
}

TEST_CASE("frames: frames are read back from pieces of any size") {
  const auto bytes = write_frame("first") + write_frame("") + write_frame("third");
  for (std::size_t piece = 1; piece <= bytes.size(); ++piece) {
    FrameReader reader(5);
    CHECK(read(reader, bytes, piece) == "first  third ");
    CHECK(reader.buffered_bytes() == 0);
  }
}

TEST_CASE("frames: after a refusal no further frame is read") {
  FrameReader reader(1000);
  CHECK(read(reader, "no frame", 3) == "its bytes are no frames of this version of a store");
  CHECK(read(reader, write_frame("a"), 3) == "its bytes are no frames of this version of a store");
  auto old = write_frame("a");
  old[0] = frame_version - 1;
  FrameReader other(1000);
  CHECK(read(other, old, 3) == "its bytes are no frames of this version of a store");
}

TEST_CASE("frames: a length is refused early, and reserves no memory") {
  FrameReader reader(1000);
  CHECK(read(reader, write_frame(std::string(1000, 'x')), 10).size() == 1001);
  CHECK(read(reader, write_frame(std::string(1001, 'x')).substr(0, 5), 10) ==
        "a frame is longer than is allowed");
  FrameReader more(10);
  more.allow(1 << 20);
  CHECK(read(more, write_frame(std::string(1 << 20, 'x')).substr(0, 5), 10).empty());
  CHECK(more.buffered_bytes() == 5);
}

TEST_CASE("frames: random bytes are read or refused, with little memory") {
  std::mt19937_64 random(1);
  std::size_t frames = 0, refused = 0, most = 0;
  for (int i = 0; i < 200000; ++i) {
    FrameReader reader(64);
    const auto kind = random();
    std::string bytes(kind % 48, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    // Most inputs begin like a frame: with the version, and a length near the limit.
    if (kind >> 40 & 7 && bytes.size() >= 5) {
      bytes[0] = frame_version;
      if (kind >> 43 & 7) bytes[1] = bytes[2] = bytes[3] = 0, bytes[4] &= 127;
    }
    reader.feed(bytes);
    while (reader.next()) ++frames;
    most = std::max(most, reader.buffered_bytes());
    refused += !reader.refusal().empty();
  }
  CHECK(frames > 2000);
  CHECK(refused > 20000);
  CHECK(most < 48);
}

}  // namespace
