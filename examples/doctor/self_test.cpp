#include "self_test.hpp"

#include "json.hpp"
#include "table.hpp"

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

namespace examples::doctor {
namespace {

/// A directory that goes with all that is in it.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    // In memory where there is such a place: no fault is to be drowned by what a disk does.
    const std::string memory = "/dev/shm";
    const bool in_memory = ::access(memory.c_str(), W_OK) == 0;
    const auto where = in_memory ? memory : std::filesystem::temp_directory_path().string();
    auto name = where + "/dhp_doctor.XXXXXX";
    dhp::check(::mkdtemp(name.data()) != nullptr, "no directory can be made in ", where,
               "; set TMPDIR to a place that can be written to");
    path_ = name;
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] std::string file(const char* name) const { return (path_ / name).string(); }
  [[nodiscard]] std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

/// Runs a program to its end, with what it writes in a file; its exit status, or -1.
int run(std::vector<std::string> command, const std::string& output) {
  std::vector<char*> arguments;
  for (auto& argument : command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, output.c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  pid_t child = 0;
  const int failed =
      ::posix_spawn(&child, arguments.front(), &files, nullptr, arguments.data(), ::environ);
  posix_spawn_file_actions_destroy(&files);
  int status = 0;
  if (failed != 0 || ::waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

/// Loose enough for ranks that share a busy machine, and with no word on how good the machine is.
Limits loose_limits() {
  Limits limits;
  for (const auto& name : limit_names) limits.*name.limit = {};
  limits.copy_slowdown = limits.gemm_slowdown = {{}, 12};
  limits.link_slowdown = limits.storage_slowdown = {{}, 30};
  limits.clock_skew_s = {{}, 10};
  limits.gpu_ecc_uncorrected = {{}, 0};
  return limits;
}

struct Outcome {
  bool right = false;
  std::string sentence{};
};

class SelfTest {
 public:
  SelfTest(const DoctorOptions& options, std::string program)
      : options_(options), program_(std::move(program)) {
    std::ofstream(directory_.file("limits.json")) << limits_text(loose_limits());
  }

  /// fault: null for a run without one.
  [[nodiscard]] Outcome outcome(const FaultName* fault, int rank) {
    const auto json = directory_.file("report.json"), output = directory_.file("output");
    std::vector<std::string> command{program_,        "--quick",
                                     "--ranks",       std::to_string(options_.run.mesh.data),
                                     "--limits",      directory_.file("limits.json"),
                                     "--json",        json,
                                     "--storage",     directory_.path(),
                                     "--storage-mb",  "4",
                                     "--comm-timeout"};
    const bool missing = fault != nullptr && std::string(fault->name) == "missing-rank";
    command.push_back(missing ? "4" : "60");
    if (fault != nullptr) {
      command.push_back("--inject");
      command.push_back(dhp::concat(fault->name, "=", rank));
    }
    std::filesystem::remove(json);
    const int status = run(command, output);
    const auto report = nlohmann::json::parse(text_of(json), nullptr, false);
    if (!report.is_object()) return {false, "no report: " + text_of(output)};
    return fault == nullptr ? clean(status, report) : found(*fault, rank, status, report);
  }

 private:
  static std::string text_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }
  static Outcome clean(int status, const nlohmann::json& report) {
    for (const auto& finding : report.at("findings"))
      for (const auto& problem : finding.at("problems"))
        return {false, problem.at("sentence").get<std::string>()};
    return {status == 0, dhp::concat("nothing; exit status ", status)};
  }
  /// Its check says so and names the rank, and no other check has found anything.
  static Outcome found(const FaultName& fault, int rank, int status, const nlohmann::json& report) {
    Outcome outcome{false, dhp::concat("not found; exit status ", status)};
    for (const auto& finding : report.at("findings"))
      for (const auto& problem : finding.at("problems")) {
        const auto sentence = problem.at("sentence").get<std::string>();
        const auto ranks = problem.at("ranks").get<std::set<int>>();
        if (finding.at("check") != fault.check) return {false, "found besides: " + sentence};
        const auto named = sentence.find(dhp::concat("rank ", rank)) != sentence.npos;
        if (!named || !(ranks.empty() || ranks.contains(rank)) || status != 1)
          return {false, dhp::concat(sentence, "; exit status ", status)};
        if (!outcome.right) outcome = {true, sentence};
      }
    return outcome;
  }

  const DoctorOptions& options_;
  std::string program_;
  TemporaryDirectory directory_;
};

}  // namespace

int self_test(const DoctorOptions& options, const std::string& program) {
  const int ranks = options.run.mesh.data;
  dhp::check(ranks >= 3,
             "--self-test needs at least 3 ranks, one that is wrong among two that are "
             "not, got ",
             ranks, "; add --ranks 4");
  SelfTest test(options, program);
  int wrong = 0;
  const auto show = [&](const std::string& what, const Outcome& outcome) {
    wrong += outcome.right ? 0 : 1;
    constexpr std::size_t column = 18;
    const auto start = what + std::string(what.size() < column ? column - what.size() : 1, ' ') +
                       (outcome.right ? "found    " : "WRONG    ");
    std::fputs(wrapped(start + outcome.sentence, start.size()).c_str(), stdout);
    std::fflush(stdout);
  };
  show("no fault", test.outcome(nullptr, -1));
  const int rank = ranks / 2;
  for (const auto& fault : fault_names)
    show(dhp::concat(fault.name, "=", rank), test.outcome(&fault, rank));
  if (wrong == 0) std::printf("\nEvery fault was found, and nothing else.\n");
  else std::printf("\n%d of %zu runs went wrong.\n", wrong, fault_names.size() + 1);
  return wrong == 0 ? 0 : 1;
}

}  // namespace examples::doctor
