// Variables by name, of a map or of this process.
#include <dhp/comm/meet/environment.hpp>
#include <tests/support/tensors.hpp>

#include <doctest/doctest.h>

#include <cstdlib>

namespace {

using namespace tests;

TEST_CASE("environment: what is set, what is empty and what is not there") {
  const Environment some({{"A", "text"}, {"EMPTY", ""}});
  CHECK(some.text("A") == "text");
  CHECK(some.has("EMPTY"));
  CHECK(some.text("EMPTY").empty());
  CHECK_FALSE(some.has("B"));
  CHECK(some.text("B").empty());
  CHECK_FALSE(some.has("a"));
}

TEST_CASE("environment: whole numbers, and nothing but those") {
  const Environment some({{"N", "12"}, {"LESS", "-3"}, {"MANY", "2147483647"}});
  CHECK(some.number("N") == 12);
  CHECK(some.number("LESS") == -3);
  CHECK(some.number("MANY") == 2147483647);
  CHECK(some.number("B") == std::nullopt);
  for (const char* text : {"", " 1", "1 ", "1x", "x", "1.0", "+1", "0x1", "2147483648", "--1"}) {
    const auto said = message_of([&] {
      (void)Environment(Environment::Variables{{"N", text}}).number("N");
    });
    CHECK(said == concat("N is \"", text, "\", not a whole number"));
  }
}

TEST_CASE("environment: that of the process, as it was when it was read") {
  REQUIRE(::setenv("DHP_TEST_OF_ENVIRONMENT", "a=b", 1) == 0);
  const auto before = Environment::of_process();
  REQUIRE(::unsetenv("DHP_TEST_OF_ENVIRONMENT") == 0);
  const auto after = Environment::of_process();
  CHECK(before.text("DHP_TEST_OF_ENVIRONMENT") == "a=b");
  CHECK_FALSE(after.has("DHP_TEST_OF_ENVIRONMENT"));
  const char* const path = std::getenv("PATH");
  CHECK(after.text("PATH") == (path == nullptr ? "" : path));
}

}  // namespace
