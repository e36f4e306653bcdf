// A process that a test forks, stops and kills.
#pragma once

#include <tests/support/test.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace tests {

/// Runs body(send) in a child process, without doctest. Its exit status is 0, or 1 after an exception. send(text) sends
/// a text to the test. When this object ends, the child is killed if it still runs.
class Child {
 public:
  using Send = std::function<void(const std::string&)>;
  explicit Child(const std::function<void(const Send&)>& body) {
    REQUIRE(::pipe(ends_) == 0);
    process_ = ::fork();
    if (process_ != 0) return;
    int status = 1;
    try {
      body([this](const std::string& text) {
        if (::write(ends_[1], text.data(), text.size()) < 0) ::_exit(2);
      });
      status = 0;
    } catch (...) {}
    ::_exit(status);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (lives()) {
      signal(SIGKILL);
      (void)wait();
    }
    for (const int end : ends_) ::close(end);
  }
  [[nodiscard]] bool lives() {
    if (process_ > 0 && ::waitpid(process_, nullptr, WNOHANG) == process_) process_ = 0;
    return process_ > 0;
  }
  /// Waits until the child says something.
  [[nodiscard]] std::string heard() const {
    std::string text(4096, '\0');
    text.resize(
        static_cast<std::size_t>(std::max<ssize_t>(0, ::read(ends_[0], text.data(), 4096))));
    return text;
  }
  void signal(int number) const { CHECK(::kill(process_, number) == 0); }
  /// Waits for the child's end, or with WUNTRACED for its stop, and returns its wait status.
  int wait(int options = 0) {
    int status = 0;
    CHECK(::waitpid(process_, &status, options) == process_);
    if (!WIFSTOPPED(status)) process_ = 0;
    return status;
  }

 private:
  int ends_[2]{};
  ::pid_t process_ = 0;
};

}  // namespace tests
