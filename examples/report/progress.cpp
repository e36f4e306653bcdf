#include "progress.hpp"

#include <dhp/core/system_error.hpp>
#include <dhp/train/file_lock.hpp>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <set>

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

Progress::Progress(std::int64_t steps_before, std::int64_t total_steps)
    : first_(steps_before),
      total_(total_steps),
      terminal_(isatty(STDERR_FILENO) != 0),
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
  const bool plain = std::getenv("NO_COLOR") != nullptr;
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

namespace {

/// The part of a file that is kept.
struct Kept {
  std::uintmax_t bytes = 0;
  std::int64_t last_step = 0;
};
/// Returns the size of the lines up to the training step `last`. They include neither the evaluation after it, which a
/// continued run does again, nor a line that an ended run left incomplete.
Kept lines_up_to(const std::string& path, std::int64_t last) {
  std::ifstream file(path);
  Kept kept;
  for (std::string line; std::getline(file, line) && !file.eof(); kept.bytes += line.size() + 1) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_object() || !json.contains("step") || !json["step"].is_number()) break;
    const auto step = json["step"].get<std::int64_t>();
    if (step > last || (step == last && !json.contains("loss"))) break;
    if (json.contains("loss")) kept.last_step = step;
  }
  return kept;
}

/// Returns whether a file is empty or begins like metrics. Any other was named by mistake, and must not be replaced.
bool may_be_metrics(const std::string& path) {
  constexpr std::string_view begins = "{\"step\"";
  std::ifstream file(path);
  std::string start(begins.size(), ' ');
  file.read(start.data(), static_cast<std::streamsize>(begins.size()));
  return begins.starts_with(start.substr(0, static_cast<std::size_t>(file.gcount())));
}

/// Locks a metrics file. Returns null if the path is no regular file, its disk has no locks, or it is locked and
/// `shared`. Throws if it is locked and not `shared`.
std::shared_ptr<const void> lock_of(const std::string& path, bool shared) {
  std::error_code unknown;
  if (std::filesystem::exists(path, unknown) && !std::filesystem::is_regular_file(path, unknown))
    return nullptr;
  try {
    return dhp::detail::FileLock::of_run(path, "--metrics " + path, false);
  } catch (const dhp::InUse&) {
    if (!shared) throw;
    return nullptr;
  } catch (const dhp::Error&) {
    return nullptr;
  }
}

}  // namespace

Metrics::Metrics(const std::string& path, std::int64_t steps_before, std::int64_t replaces,
                 bool shared)
    : path_(path) {
  if (path.empty()) return;
  std::error_code error;
  const auto kind = std::filesystem::status(path, error).type();
  const bool is_file = kind == std::filesystem::file_type::regular;
  if (kind == std::filesystem::file_type::fifo) {
    const int probe = ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    dhp::check(probe >= 0, "--metrics ", path,
               ": is a pipe that nobody reads; start its reader before the run");
    file_.open(path, std::ios::app);
    ::close(probe);
    return;
  }
  lock_ = lock_of(path, shared);
  dhp::check(!is_file || may_be_metrics(path), "--metrics ", path,
             " is a file of something else; choose another one");
  if (steps_before == 0 && is_file) {
    const auto steps = lines_up_to(path, std::numeric_limits<std::int64_t>::max()).last_step;
    dhp::check(steps <= replaces, "--metrics ", path, " has ",
               dhp::detail::pluralize(steps, "step"),
               " of another run; go on with that run by --load, choose another file, or "
               "allow to --overwrite it");
  }
  if (steps_before > 0 && is_file) {
    const auto kept = lines_up_to(path, steps_before);
    // Writes to a new file: an earlier rank 0 that wakes up would still write to the old one.
    const auto file = std::filesystem::canonical(path, error);
    const std::filesystem::path result = file.string() + ".new";
    std::filesystem::copy_file(file, result, std::filesystem::copy_options::overwrite_existing,
                               error);
    if (!error) std::filesystem::resize_file(result, kept.bytes, error);
    if (!error) std::filesystem::rename(result, file, error);
    if (error) std::filesystem::resize_file(path, kept.bytes, error);
    else lock_ = lock_of(path, shared);  // locks the new file
    last_step_ = kept.last_step;
  }
  file_.open(path, steps_before > 0 ? std::ios::app : std::ios::trunc);
  dhp::detail::check_system(file_.good(), "cannot write --metrics ", path);
}

namespace {

[[nodiscard]] nlohmann::ordered_json object_of(
    const std::vector<std::pair<std::string, double>>& fields) {
  nlohmann::ordered_json result;
  for (const auto& [name, value] : fields) {
    if (value == std::floor(value) && std::abs(value) < 9e15)
      result[name] = static_cast<std::int64_t>(value);
    else result[name] = value;
  }
  return result;
}

}  // namespace

void Metrics::write(const std::vector<std::pair<std::string, double>>& fields) {
  put(object_of(fields).dump());
}

void Metrics::write_summary(std::int64_t step,
                            const std::vector<std::pair<std::string, double>>& fields) {
  nlohmann::ordered_json line;
  line["step"] = step;
  line["summary"] = object_of(fields);
  put(line.dump());
}

void Metrics::put(const std::string& line) {
  if (!file_.is_open()) return;
  errno = 0;
  file_ << line << std::endl;
  dhp::detail::check_system(file_.good(), "cannot write --metrics ", path_);
}

void check_output() {
  struct stat kind {};
  const bool piped =
      ::fstat(STDOUT_FILENO, &kind) == 0 && !S_ISREG(kind.st_mode) && !S_ISCHR(kind.st_mode);
  const bool flushed = std::fflush(stdout) == 0;
  dhp::check(piped || (flushed && std::ferror(stdout) == 0),
             "cannot write all to standard output; is its disk full?");
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
    std::fprintf(stderr, "error: %s\n", dhp::detail::sentence_of(error).c_str());
  }
  return 1;
}

}  // namespace examples
