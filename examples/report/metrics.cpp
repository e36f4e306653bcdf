#include "metrics.hpp"

#include <dhp/core/system_error.hpp>
#include <dhp/train/file_lock.hpp>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <cmath>
#include <filesystem>

namespace examples {

namespace {

/// The part of a file that is kept.
struct Kept {
  std::uintmax_t bytes = 0;
  std::int64_t last_step = 0;
};
/// Returns the size of the lines up to the training step `last`. They include neither the evaluation after it, which a
/// continued run does again, nor a line that an ended run left incomplete. A damaged line stays if good ones follow.
Kept lines_up_to(const std::string& path, std::int64_t last) {
  std::ifstream file(path);
  Kept kept;
  std::uintmax_t read = 0;
  for (std::string line; std::getline(file, line) && !file.eof();) {
    read += line.size() + 1;
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_object() || !json.contains("step") || !json["step"].is_number()) continue;
    const auto step = json["step"].get<std::int64_t>();
    if (step > last || (step == last && !json.contains("loss"))) break;
    if (json.contains("loss")) kept.last_step = step;
    kept.bytes = read;
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

[[nodiscard]] nlohmann::ordered_json object_of(const Measures& fields) {
  nlohmann::ordered_json result;
  for (const auto& [name, value] : fields) {
    if (value == std::floor(value) && std::abs(value) < 9e15)
      result[name] = static_cast<std::int64_t>(value);
    else result[name] = value;
  }
  return result;
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

void Metrics::write(const Measures& fields) { put(object_of(fields).dump()); }

void Metrics::write_summary(std::int64_t step, const Measures& fields) {
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

}  // namespace examples
