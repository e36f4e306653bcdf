#include "progress.hpp"

#include <dhp/core/system_error.hpp>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string_view>

namespace examples {

std::string short_number(double value) {
  if (std::isnan(value)) return "nan";  // instead of "-nan"
  char text[64];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

std::string ranges(const std::set<int>& ranks) {
  std::string text;
  for (auto rank = ranks.begin(); rank != ranks.end();) {
    const int first = *rank;
    int last = first;
    while (++rank != ranks.end() && *rank == last + 1) ++last;
    text += dhp::concat(text.empty() ? "" : ",", first);
    if (last > first) text += dhp::concat(last == first + 1 ? "," : "-", last);
  }
  return text.empty() ? "-" : text;
}

std::string duration_text(double seconds) {
  const auto total = static_cast<long long>(std::llround(std::max(0.0, seconds)));
  char text[64];
  if (total >= 3600)
    std::snprintf(text, sizeof text, "%lld h %02lld min", total / 3600, total / 60 % 60);
  else if (total >= 60)
    std::snprintf(text, sizeof text, "%lld min %02lld s", total / 60, total % 60);
  else std::snprintf(text, sizeof text, "%lld s", total);
  return text;
}

/// The value of a variable of the environment; empty if it is not set.
static std::string_view environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Progress::Progress(std::int64_t steps_before, std::int64_t total_steps)
    : first_(steps_before),
      total_(total_steps),
      // A dumb terminal, as in an editor, shows the bar's control characters as letters.
      terminal_(isatty(STDERR_FILENO) != 0 && environment("TERM") != "dumb"),
      print_every_(std::max<std::int64_t>(1, (total_steps - steps_before) / 20)) {}

void Progress::step(std::int64_t step, double loss, double seconds, double samples_per_s,
                    const std::string& notes) {
  step_seconds_ += seconds;
  const double done = static_cast<double>(step - first_);
  const double left = step_seconds_ / done * static_cast<double>(total_ - step);
  const std::string numbers = dhp::concat(
      "step ", step, "/", total_, "  loss ", short_number(loss), "  ", short_number(samples_per_s),
      " samples/s  ", duration_text(left), " left", notes.empty() ? "" : "  ", notes);
  if (!terminal_) {
    if (step == first_ + 1 || step == total_ || step % print_every_ == 0)
      std::fprintf(stderr, "%s\n", numbers.c_str());
    return;
  }
  // A line wider than the terminal would become two, and the next step would replace only one of them.
  winsize screen{};
  const bool told = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &screen) == 0 && screen.ws_col > 2;
  const int columns = (told ? screen.ws_col : 80) - 2;
  const int width = std::clamp(columns - static_cast<int>(numbers.size()), 0, 24);
  const int filled = static_cast<int>(width * step / std::max<std::int64_t>(1, total_));
  std::string bar;
  for (int at = 0; at < width; ++at) bar += at < filled ? "━" : at == filled ? "╸" : " ";
  const bool plain = !environment("NO_COLOR").empty();
  std::fprintf(stderr, "\r%s%s%s %s\x1b[K", plain ? "" : "\x1b[36m", bar.c_str(),
               plain ? "" : "\x1b[0m",
               numbers.substr(0, static_cast<std::size_t>(columns)).c_str());
  std::fflush(stderr);
  bar_shown_ = true;
}

void Progress::clear_bar() {
  if (bar_shown_) std::fprintf(stderr, "\r\x1b[K");
  bar_shown_ = false;
}

void Progress::line(const std::string& text) {
  clear_bar();
  std::fprintf(stderr, "%s\n", text.c_str());
}

void Progress::finish() {
  if (bar_shown_) std::fprintf(stderr, "\n");
  bar_shown_ = false;
}

void check_output() {
  struct stat kind {};
  // The reader of a pipe may end first, and nobody reads a closed stream.
  const bool kept =
      ::fstat(STDOUT_FILENO, &kind) == 0 && (S_ISREG(kind.st_mode) || S_ISCHR(kind.st_mode));
  const bool flushed = std::fflush(stdout) == 0;
  dhp::check(!kept || (flushed && std::ferror(stdout) == 0),
             "cannot write all to standard output; is its disk full?");
}

std::string sentence_of(const std::exception& error) {
  const auto* const files = dynamic_cast<const std::filesystem::filesystem_error*>(&error);
  return files == nullptr ? dhp::detail::sentence_of(error)
                          : dhp::concat("cannot look at ", files->path1().string(), ": ",
                                        files->code().message());
}

int exit_status_of(const std::function<int()>& body) {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(stream, F_GETFD) < 0) (void)::open("/dev/null", O_RDWR);  // gets its number
  // Without these signals, a failed write of a file becomes an exception, and a lost terminal does not end a run.
  for (const int number : {SIGPIPE, SIGXFSZ}) std::signal(number, SIG_IGN);
  try {
    const int status = body();
    check_output();
    return status;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", sentence_of(error).c_str());
  }
  return 1;
}

}  // namespace examples
