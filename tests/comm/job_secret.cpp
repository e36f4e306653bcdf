// Secrets from the environment: taken, or refused in a sentence that does not show them.
#include <dhp/comm/job_secret.hpp>
#include <tests/comm/folder.hpp>
#include <tests/support/tensors.hpp>

#include <doctest/doctest.h>

namespace {

using namespace tests;

const std::string good = "0123456789abcdef";

TEST_CASE("job secret: from the variable") {
  CHECK(job_secret(nullptr, nullptr) == "");
  CHECK(job_secret(good.c_str(), nullptr) == good);
  CHECK(message_of([] { (void)job_secret("", nullptr); }) ==
        "the secret of DHP_JOB_SECRET has 0 bytes; a secret has 16 to 4096: head -c 32 "
        "/dev/urandom | "
        "base64 makes one");
  CHECK(
      message_of([] { (void)job_secret("0123456789abcde", nullptr); }) ==
      "the secret of DHP_JOB_SECRET has 15 bytes; a secret has 16 to 4096: head -c 32 /dev/urandom "
      "| base64 makes one");
  CHECK(message_of([] { (void)job_secret(good.c_str(), "/there"); }) ==
        "DHP_JOB_SECRET and DHP_JOB_SECRET_FILE are both set; unset one of them");
}

TEST_CASE("job secret: from a file of this user alone") {
  const Folder place;
  const auto path = place.path + "/secret";
  const auto said = [&] { return message_of([&] { (void)job_secret(nullptr, path.c_str()); }); };
  const auto write = [&](const std::string& text, ::mode_t mode) {
    ::unlink(path.c_str());
    OpenFile(path, O_WRONLY | O_CREAT).write(text);
    CHECK(::chmod(path.c_str(), mode) == 0);
  };
  CHECK(said() == "DHP_JOB_SECRET_FILE: cannot look at " + path + ": No such file or directory");
  for (const auto mode : {0600u, 0400u})
    for (const auto* const end : {"", "\n", "\r\n"}) {
      write(good + end, mode);
      CHECK(job_secret(nullptr, path.c_str()) == good);
    }
  for (const auto mode : {0640u, 0604u, 0620u, 0610u, 0666u}) {
    write(good, mode);
    CHECK(said() == "DHP_JOB_SECRET_FILE: others may use " + path +
                        "; chmod 600 makes it yours alone, but who has read it knows the secret");
  }
  write("short\n", 0600);
  CHECK(said() ==
        "the secret of DHP_JOB_SECRET_FILE has 5 bytes; a secret has 16 to 4096: head -c 32 "
        "/dev/urandom | base64 makes one");
  write(std::string(5000, 'x'), 0600);
  CHECK(said() == "DHP_JOB_SECRET_FILE: " + path + " has 5000 bytes; a secret has 16 to 4096");
  ::unlink(path.c_str());
  CHECK(::mkfifo(path.c_str(), 0600) == 0);
  CHECK(said() == "DHP_JOB_SECRET_FILE: " + path + " is not a file");
  CHECK(message_of([&] { (void)job_secret(nullptr, place.path.c_str()); }) ==
        "DHP_JOB_SECRET_FILE: " + place.path + " is not a file");
  if (::geteuid() != 0) return;  // only root can give a file away
  write(good, 0600);
  CHECK(::chown(path.c_str(), 12345, 12345) == 0);
  CHECK(said() ==
        "DHP_JOB_SECRET_FILE: " + path + " belongs to another user; use a file of your own");
}

}  // namespace
