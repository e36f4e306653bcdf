// Errors of system calls contain the text of errno, which is read before another call can change it.
#include <dhp/core/system_error.hpp>
#include <tests/support/test.hpp>

#include <unistd.h>

namespace {

std::string changes_errno() {
  errno = ERANGE;
  return "a descriptor";
}

TEST_CASE("system errors: errno is that of the failed call, whatever its arguments do") {
  errno = EDOM;
  CHECK_THROWS_WITH_AS(
      detail::check_system(::close(-1) == 0, "cannot close ", changes_errno(), " of ", -1),
      Contains("cannot close a descriptor of -1: Bad file descriptor"), dhp::Error);
  errno = EDOM;
  CHECK_THROWS_WITH_AS(
      detail::check_system(::close(-1) == 0, changes_errno() + " cannot be closed"),
      Contains("cannot be closed: Bad file descriptor"), dhp::Error);
}

TEST_CASE("system errors: success gives no error, and an error has the caller's place") {
  errno = EDOM;
  detail::check_system(::access("/", F_OK) == 0, "cannot see /");
  const auto line = __LINE__ + 2;
  try {
    detail::check_system(::close(-1) == 0, "cannot close it");
    FAIL("no error");
  } catch (const dhp::Error& error) {
    CHECK(error.where().line() == line);
    CHECK(error.sentence() == "cannot close it: Bad file descriptor");
  }
}

TEST_CASE("system errors: a thread that the system refuses is told as one") {
  const auto no_thread = std::make_error_code(std::errc::resource_unavailable_try_again);
  CHECK(has(detail::sentence_of(std::system_error(no_thread)),
            "a thread cannot be started (Resource"));
  CHECK(detail::sentence_of(std::runtime_error("torn")) == "torn");
}

}  // namespace
