// Frames: whole or refused, in any pieces, whatever the bytes are.
#include <dhp/comm/frames.hpp>

#include <doctest/doctest.h>

#include <random>
#include <vector>

namespace {

using namespace dhp;

const std::string key = "the key of a connection";

FrameWriter sealed_writer(FrameSide side = FrameSide::client) {
  FrameWriter writer;
  writer.seal(key, side);
  return writer;
}
FrameReader sealed_reader(std::size_t longest = 1000) {
  FrameReader reader(10);
  reader.seal(key, FrameSide::client, longest);
  return reader;
}
// What is read of these bytes, one frame after another: "type:payload ", and the refusal.
std::string read(FrameReader& reader, const std::string& bytes, std::size_t piece) {
  std::string text;
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    reader.feed(std::string_view(bytes).substr(at, piece));
    while (const auto frame = reader.next()) {
      text += concat(static_cast<int>(frame->type), ":", frame->payload, " ");
    }
  }
  return text + reader.refusal();
}
std::string read(FrameReader reader, const std::string& bytes) {
  return read(reader, bytes, bytes.size() + 1);
}

const std::string forged =
    "a frame was not written with the key of this connection, or not in "
    "this order";

TEST_CASE("frames: they come out as they went in, in pieces of any size, with tags and without") {
  for (const bool sealed : {false, true})
    for (std::size_t piece = 1; piece < 200; piece += piece < 60 ? 1 : 30) {
      auto writer = sealed ? sealed_writer() : FrameWriter();
      auto reader = sealed ? sealed_reader() : FrameReader(1000);
      auto bytes = writer.write(1, "first");
      bytes += writer.write(2, "");
      bytes += writer.write(255, "third");
      CHECK(read(reader, bytes, piece) == "1:first 2: 255:third ");
      CHECK(reader.buffered_bytes() == 0);
    }
}

TEST_CASE("frames: a frame that is changed anywhere is refused") {
  auto writer = sealed_writer();
  const auto bytes = writer.write(7, "payload");
  CHECK(read(sealed_reader(), bytes) == "7:payload ");
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    auto changed = bytes;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    changed += std::string(600, 'x');  // so that a longer length is whole, too
    const auto text = read(sealed_reader(), changed);
    INFO(bit);
    CHECK(text.find("7:") == text.npos);
    CHECK(text.find("payload") == text.npos);
    CHECK(!text.empty());
  }
}

TEST_CASE("frames: a frame that is repeated, left out, out of order or sent back is refused") {
  auto writer = sealed_writer();
  const auto a = writer.write(1, "a"), b = writer.write(1, "b"), c = writer.write(1, "c");
  CHECK(read(sealed_reader(), a + b + c) == "1:a 1:b 1:c ");
  CHECK(read(sealed_reader(), a + a) == "1:a " + forged);
  CHECK(read(sealed_reader(), a + c) == "1:a " + forged);
  CHECK(read(sealed_reader(), b + a) == forged);
  CHECK(read(sealed_reader(), sealed_writer(FrameSide::server).write(1, "a")) == forged);
  FrameReader other(10);
  other.seal("another key", FrameSide::client, 1000);
  CHECK(read(other, a) == forged);
  CHECK(read(sealed_reader(), FrameWriter().write(1, "a") + std::string(40, 'x')) == forged);
}

TEST_CASE("frames: after a refusal nothing is read, or kept") {
  auto writer = sealed_writer();
  const auto good = writer.write(1, "a");
  auto reader = sealed_reader();
  CHECK(read(reader, "no frame", 3) == "its bytes are no frames of this version of a store");
  CHECK(read(reader, good, 3) == "its bytes are no frames of this version of a store");
  CHECK(reader.buffered_bytes() == 0);
}

TEST_CASE("frames: a length is refused before its bytes have come, and no memory is taken for it") {
  for (const bool sealed : {false, true}) {
    auto writer = sealed ? sealed_writer() : FrameWriter();
    auto reader = sealed ? sealed_reader() : FrameReader(1000);
    CHECK(read(reader, writer.write(3, std::string(1000, 'x')), 10).size() == 1003);
    std::string header{1, 3};
    append_number(header, 1001);
    CHECK(read(reader, header, 10) == "a frame is longer than is allowed");
  }
  FrameReader reader(1 << 20);
  std::string header{1, 3};
  append_number(header, 1 << 20);
  CHECK(read(reader, header, 10).empty());
  CHECK(reader.buffered_bytes() == 6);
}

TEST_CASE("frames: a million random inputs are read or refused, and take little memory") {
  std::mt19937_64 random(1);
  FrameWriter plain;
  std::size_t frames = 0, refused = 0, most = 0;
  std::string bytes;
  for (int i = 0; i < 1000000; ++i) {
    FrameReader reader(64);
    const auto kind = random();
    if (kind % 64 == 0) reader.seal(key, FrameSide::client, 64);
    bytes.resize(kind / 64 % 48);
    for (std::size_t at = 0; at < bytes.size(); at += 8) {
      const auto word = random();
      for (std::size_t byte = 0; byte < 8 && at + byte < bytes.size(); ++byte)
        bytes[at + byte] = static_cast<char>(word >> 8 * byte);
    }
    // Most inputs begin as a frame does: the version, and a length near those that are allowed.
    if (kind >> 40 & 7 && bytes.size() >= 6) {
      bytes[0] = 1;
      if (kind >> 43 & 7) bytes[2] = bytes[3] = bytes[4] = 0, bytes[5] &= 127;
    }
    const std::size_t cut = bytes.empty() ? 0 : (kind >> 50) % bytes.size();
    for (const auto piece :
         {std::string_view(bytes).substr(0, cut), std::string_view(bytes).substr(cut)}) {
      reader.feed(piece);
      while (reader.next()) ++frames;
      most = std::max(most, reader.buffered_bytes());
    }
    refused += !reader.refusal().empty();
  }
  MESSAGE(frames, " frames read, ", refused, " inputs refused");
  CHECK(frames > 10000);
  CHECK(refused > 100000);
  CHECK(most < 48);
}

}  // namespace
