// Fields come out as they went in, and nothing comes out of bytes that end too early.
#include <dhp/comm/fields.hpp>

#include <doctest/doctest.h>

namespace {

using namespace dhp;

TEST_CASE("fields: numbers and texts come back in their order") {
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

TEST_CASE("fields: of what is cut off nothing is read") {
  std::string whole;
  append_field(whole, "abc");
  for (std::size_t size = 0; size < whole.size(); ++size)
    CHECK(!FieldReader(std::string_view(whole).substr(0, size)).field());
  CHECK(FieldReader(whole).field().value() == "abc");
  CHECK(!FieldReader("\xff\xff\xff\xff and so on").field());
  CHECK(!FieldReader("abc").bytes(4));
}

TEST_CASE("fields: two fields are not mistaken for two others") {
  std::string one, other;
  append_field(one, "ab");
  append_field(one, "c");
  append_field(other, "a");
  append_field(other, "bc");
  CHECK(one != other);
}

}  // namespace
