// SharedMemory, of this process and of a child of it.
#include <dhp/comm/shared_memory.hpp>
#include <tests/support/tensors.hpp>

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>

namespace {

using namespace dhp;

TEST_CASE("shared_memory: what one writes the other reads, at another address") {
  const auto made = SharedMemory::create(1 << 20);
  CHECK(made.size() == (1 << 20) - SharedMemory::reserved);
  const auto opened = SharedMemory::open(made.address());
  CHECK(opened.size() == made.size());
  CHECK(opened.data() != made.data());
  CHECK(opened.data()[made.size() - 1] == std::byte{0});
  made.data()[made.size() - 1] = std::byte{7};
  CHECK(opened.data()[made.size() - 1] == std::byte{7});
}

TEST_CASE("shared_memory: more than the machine has costs nothing until it is written to") {
  const auto made = SharedMemory::create(std::size_t{1} << 38);
  made.data()[made.size() - 1] = std::byte{1};
  CHECK(made.data()[0] == std::byte{0});
}

TEST_CASE("shared_memory: it outlives its owner, and says that it has one no more") {
  auto made = std::make_unique<SharedMemory>(SharedMemory::create(1 << 20));
  const auto opened = SharedMemory::open(made->address());
  made->data()[0] = std::byte{5};
  CHECK_FALSE(opened.owner_gone());
  made.reset();
  CHECK(opened.owner_gone());
  CHECK(opened.data()[0] == std::byte{5});
}

TEST_CASE("shared_memory: a process that is stopped lives, one that is killed does not") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const auto child = ::fork();
  if (child == 0) {
    const auto made = SharedMemory::create(1 << 20);
    const auto address = made.address() + "\n";
    if (::write(ends[1], address.data(), address.size()) < 0) ::_exit(1);
    for (;;) ::pause();
  }
  std::string address;
  for (char letter = 0; ::read(ends[0], &letter, 1) == 1 && letter != '\n';) address += letter;
  ::close(ends[0]);
  ::close(ends[1]);
  {
    const auto opened = SharedMemory::open(address);
    CHECK_FALSE(opened.owner_gone());
    ::kill(child, SIGSTOP);
    int status = 0;
    ::waitpid(child, &status, WUNTRACED);
    CHECK_FALSE(opened.owner_gone());
    ::kill(child, SIGKILL);
    bool gone = false;  // before anybody has waited for it
    for (int look = 0; look < 1000 && !gone; ++look) {
      gone = opened.owner_gone();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    CHECK(gone);
    ::waitpid(child, &status, 0);
  }
  CHECK(tests::message_of([&] {
          static_cast<void>(SharedMemory::open(address));
        }).find("cannot open shared memory: No such file or directory") != std::string::npos);
}

TEST_CASE("shared_memory: another one's, and what is none") {
  const auto made = SharedMemory::create(1 << 20);
  auto address = made.address();
  address.back() = address.back() == 'a' ? 'b' : 'a';
  CHECK(tests::message_of([&] {
          static_cast<void>(SharedMemory::open(address));
        }).find("is another one's") != std::string::npos);
  CHECK(tests::message_of([] {
          return SharedMemory::open("hello");
        }).find("not an address of shared memory: \"hello\"") != std::string::npos);
  CHECK(tests::message_of([] { return SharedMemory::create(100); }).find("too small") !=
        std::string::npos);
}

TEST_CASE("shared_memory: a domain is that of this user, machine and namespaces") {
  CHECK(memory_domain() == memory_domain());
  CHECK(memory_domain().find(concat("/", ::geteuid(), "/")) != std::string::npos);
}

}  // namespace
