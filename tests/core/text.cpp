#include <dhp/core/error.hpp>
#include <dhp/core/text.hpp>
#include <tests/support/test.hpp>

TEST_CASE("concat: joins strings, characters, booleans and shortest exact numbers") {
  const std::string name = "x";
  CHECK(concat("a", name, std::string_view("b"), 'c', true, false) == "axbctruefalse");
  CHECK(concat(-7, " ", std::uint64_t{18446744073709551615u}) == "-7 18446744073709551615");
  CHECK(concat(0.1, " ", 0.1f, " ", 1e300) == "0.1 0.1 1e+300");
  CHECK(concat(-std::nan(""), " ", -std::numeric_limits<double>::infinity()) == "nan -inf");
  CHECK(concat().empty());
}

TEST_CASE("many: one thing has no plural") {
  using dhp::detail::pluralize;
  CHECK(pluralize(1, "step") + ", " + pluralize(0, "epoch") + ", " + pluralize(2u, "micro-batch") +
            ", " + pluralize(std::size_t{3}, "class") ==
        "1 step, 0 epochs, 2 micro-batches, 3 classes");
}

TEST_CASE("errors: an error has a sentence and the place of the check") {
  const int line = __LINE__ + 2;
  try {
    dhp::check(1 > 2, "1 is not above ", 2, "; choose 3");
    FAIL("not refused");
  } catch (const dhp::Error& error) {
    CHECK(error.sentence() == "1 is not above 2; choose 3");
    CHECK(static_cast<int>(error.where().line()) == line);
    // If the clone's folder is named dhp, the printed path begins with this folder.
    const std::string what = error.what();
    CHECK(what.starts_with("1 is not above 2; choose 3 ["));
    CHECK(what.ends_with(concat("text.cpp:", line, "]")));
  }
  dhp::check(true, "never said");
}

TEST_CASE("error: a sentence names one rank") {
  CHECK(dhp::detail::said_by(2, "the disk is full") == "rank 2: the disk is full");
  CHECK(dhp::detail::said_by(2, "rank 1: the disk is full") == "rank 1: the disk is full");
}
