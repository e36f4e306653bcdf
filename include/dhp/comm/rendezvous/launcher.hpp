// Reads the environment variables of each launcher. ProcessRank chooses one of the launchers.
#pragma once

#include <dhp/comm/rendezvous/address.hpp>

#include <unistd.h>

#include <cstdio>
#include <functional>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

namespace dhp::detail {
/// Environment variables, of the process or of a test.
class Environment {
 public:
  using Variables = std::map<std::string, std::string, std::less<>>;

  explicit Environment(Variables variables) : variables_(std::move(variables)) {}

  [[nodiscard]] static Environment of_process() {
    Variables variables;
    for (char** entry = ::environ; entry != nullptr && *entry != nullptr; ++entry) {
      const std::string_view text(*entry);
      const auto equals = text.find('=');
      if (equals != text.npos)
        variables.emplace(text.substr(0, equals), text.substr(equals + 1));  // ignores duplicates
    }
    return Environment(std::move(variables));
  }

  /// Returns whether the variable is set, even to an empty text.
  [[nodiscard]] bool has(std::string_view name) const { return variables_.contains(name); }
  /// Returns an empty text if the variable is not set.
  [[nodiscard]] std::string text(std::string_view name) const {
    const auto found = variables_.find(name);
    return found == variables_.end() ? std::string() : found->second;
  }
  /// Returns nullopt if the variable is not set. Throws if it is not an integer.
  [[nodiscard]] std::optional<int> number(std::string_view name) const {
    const auto found = variables_.find(name);
    if (found == variables_.end()) return std::nullopt;
    const auto value = number_of<int>(found->second);
    check(value.has_value(), name, " is \"", found->second, "\", not a whole number");
    return value;
  }

 private:
  Variables variables_;
};

/// Returns which variables that make a process a rank are set: "RANK, WORLD_SIZE".
[[nodiscard]] inline std::string rank_variables(const Environment& environment) {
  std::istringstream known(
      "DHP_RANK DHP_WORLD_SIZE DHP_MASTER_ADDR DHP_MASTER_PORT TORCHELASTIC_RUN_ID RANK WORLD_SIZE "
      "LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT OMPI_COMM_WORLD_RANK "
      "OMPI_COMM_WORLD_SIZE PMI_RANK PMI_SIZE SLURM_PROCID SLURM_STEP_ID SLURM_STEP_NUM_TASKS "
      "PET_NODE_RANK PET_NNODES JOB_COMPLETION_INDEX");
  std::string names;
  for (std::string name; known >> name;)
    if (environment.has(name)) names += concat(names.empty() ? "" : ", ", name);
  return names;
}
/// Appends the advice to unset `variables`, which may be left over in the shell from an earlier job.
[[nodiscard]] inline std::string or_unset(std::string sentence, const std::string& variables) {
  if (variables.empty()) return sentence;
  sentence += sentence.find(';') == sentence.npos ? "; set what is meant" : "";
  return concat(sentence, ", or unset those left over (", variables, ")");
}

/// Returns the first host of a Slurm list: "n07" of "n[07-08,12],login".
[[nodiscard]] inline std::string first_host(std::string_view list) {
  constexpr std::size_t longest_name = 253;  // longest name in DNS
  constexpr std::string_view digits = "0123456789";
  std::string host;
  bool good = true;
  for (std::size_t at = 0; good && at < list.size() && list[at] != ',';) {
    const char letter = list[at];
    if (letter != '[') {
      good = letter > ' ' && letter < 127 && letter != ']' && letter != '/';
      host += letter;
      ++at;
      continue;
    }
    const auto end = list.find(']', at);
    const auto ranges = list.substr(at + 1, end - at - 1);
    const auto first = ranges.substr(0, ranges.find_first_not_of(digits));
    good = end != list.npos && !first.empty() &&
           ranges.find_first_not_of("0123456789-,") == ranges.npos;
    host += first;
    at = end + 1;
  }
  check(good && !host.empty() && host.size() <= longest_name, "\"", list.substr(0, 80),
        "\" is no list of hosts as Slurm writes it");
  return host;
}

/// Returns the number of tasks on node `node`, from a Slurm list: "2(x3),1" means three nodes with 2 and one with 1.
[[nodiscard]] inline int tasks_on_node(const std::string& list, int node) {
  for (std::size_t at = 0; at < list.size();) {
    const auto item = list.substr(at, list.find(',', at) - at);
    int tasks = -1, nodes = 1, read = 0;
    (void)std::sscanf(item.c_str(), "%9d%n(x%9d)%n", &tasks, &read, &nodes, &read);
    if (tasks < 0 || nodes < 1 || item.size() != as_size(read)) break;
    if (node < nodes) return tasks;
    node -= nodes;
    at += item.size() + 1;
  }
  fail("\"", list.substr(0, 80),
       "\" does not say how many tasks each node has, as Slurm writes it");
}

struct LauncherInfo {
  std::string launcher;
  std::string rank_name;  // name of the variable with the rank
  std::string size_name;
  int rank = 0, size = 1;
  std::optional<int> local_rank{};  // rank among the ranks of this machine
  std::optional<int> local_size{};  // number of ranks on this machine
  std::string master{};             // host of rank 0, if this launcher sets it
  std::optional<int> port{};
  std::string job{};  // equal on all ranks of one start, different in other starts; empty: none
};

/// Reads the variables with these names. Throws Error unless both rank and size are set.
[[nodiscard]] inline LauncherInfo read_launcher(const Environment& environment,
                                                std::string launcher, std::string rank_name,
                                                std::string size_name,
                                                std::string_view local_rank_name = {},
                                                std::string_view local_size_name = {}) {
  const auto rank = environment.number(rank_name), size = environment.number(size_name);
  check(rank && size, rank_name, " and ", size_name,
        " belong together, but only one of them is set");
  return {std::move(launcher),
          std::move(rank_name),
          std::move(size_name),
          *rank,
          *size,
          environment.number(local_rank_name),
          environment.number(local_size_name)};
}

[[nodiscard]] inline std::optional<LauncherInfo> plain_rank(const Environment& environment) {
  if (!environment.has("RANK") && !environment.has("WORLD_SIZE")) return std::nullopt;
  return read_launcher(environment, "RANK and WORLD_SIZE", "RANK", "WORLD_SIZE", "LOCAL_RANK",
                       "LOCAL_WORLD_SIZE");
}

/// Reads torchrun's variables. Its restart count is per machine, so it tells starts apart only on a single machine.
[[nodiscard]] inline std::optional<LauncherInfo> torchrun_rank(const Environment& environment) {
  if (!environment.has("TORCHELASTIC_RUN_ID")) return std::nullopt;
  auto info = read_launcher(environment, "torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK",
                            "LOCAL_WORLD_SIZE");
  info.job = concat("torchrun-", environment.text("TORCHELASTIC_RUN_ID"), "-",
                    environment.text("MASTER_PORT"));
  if (environment.text("GROUP_WORLD_SIZE") == "1")
    info.job += "-" + environment.text("TORCHELASTIC_RESTART_COUNT");
  return info;
}

[[nodiscard]] inline std::optional<LauncherInfo> open_mpi_rank(const Environment& environment) {
  if (!environment.has("OMPI_COMM_WORLD_RANK")) return std::nullopt;
  auto info = read_launcher(environment, "Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                            "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE");
  auto id = environment.text("PMIX_NAMESPACE");
  if (id.empty()) id = environment.text("OMPI_MCA_ess_base_jobid");
  if (!id.empty()) info.job = concat("openmpi-", id);
  return info;
}

/// Reads the rank of a task of srun. Batch scripts and shells in an allocation have Slurm's variables too, but are no
/// tasks: they have no step, or one of two reserved step numbers.
[[nodiscard]] inline std::optional<LauncherInfo> slurm_rank(const Environment& environment) {
  for (const char* name : {"SLURM_PROCID", "SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS"})
    if (!environment.has(name)) return std::nullopt;
  const auto step = environment.text("SLURM_STEP_ID");
  if (step == "4294967290" || step == "4294967291") return std::nullopt;  // interactive or batch
  auto info =
      read_launcher(environment, "Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID");
  const auto node = environment.number("SLURM_NODEID");
  if (const auto tasks = environment.text("SLURM_STEP_TASKS_PER_NODE"); node && !tasks.empty())
    info.local_size = tasks_on_node(tasks, *node);
  for (const char* name : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"})
    if (const auto nodes = environment.text(name); info.master.empty() && !nodes.empty())
      info.master = first_host(nodes);
  info.job = concat("slurm-", environment.text("SLURM_JOB_ID"), ".", step, ".",
                    environment.number("SLURM_RESTART_COUNT").value_or(0));
  return info;
}

/// Reads the rank of MPICH, Intel MPI and other Hydra launchers; nullopt if srun has set the same variables.
[[nodiscard]] inline std::optional<LauncherInfo> mpich_rank(const Environment& environment) {
  if (!environment.has("PMI_RANK")) return std::nullopt;
  auto info = read_launcher(environment, "MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID",
                            "MPI_LOCALNRANKS");
  const auto slurm = slurm_rank(environment);
  if (slurm && slurm->rank == info.rank && slurm->size == info.size) return std::nullopt;
  return info;
}

/// Reads a pod that is one rank. The pod's name is the job's name, "-", and the pod's index.
[[nodiscard]] inline LauncherInfo read_pod(const Environment& environment, std::string launcher,
                                           std::string rank_name, std::string size_name) {
  auto info =
      read_launcher(environment, std::move(launcher), std::move(rank_name), std::move(size_name));
  info.local_rank = 0;
  info.local_size = 1;
  const auto name = environment.text("HOSTNAME");
  const auto end = concat("-", info.rank);
  if (name.size() > end.size() && name.ends_with(end))
    info.job = name.substr(0, name.size() - end.size());
  return info;
}

/// Reads a pod of Kubeflow's TrainJob or PyTorchJob, which set torchrun's variables. Without torchrun it is one rank.
[[nodiscard]] inline std::optional<LauncherInfo> kubeflow_rank(const Environment& environment) {
  if (!environment.has("PET_NODE_RANK")) return std::nullopt;
  auto info = read_pod(environment, "Kubeflow", "PET_NODE_RANK", "PET_NNODES");
  const auto ranks = environment.text("PET_NPROC_PER_NODE");
  check(ranks.empty() || ranks == "1", "PET_NPROC_PER_NODE is \"", ranks,
        "\", but this process is one rank; set it to 1 for one rank a pod, or start the ranks of "
        "a pod by torchrun --no_python");
  info.master = environment.text("PET_MASTER_ADDR");
  if (const auto port = environment.text("PET_MASTER_PORT"); !port.empty())
    info.port = parse_port("PET_MASTER_PORT", port);
  return info;
}

/// Reads a pod of an indexed Job or a JobSet. A pod knows only its own index, so DHP_WORLD_SIZE must be set.
[[nodiscard]] inline std::optional<LauncherInfo> kubernetes_rank(const Environment& environment) {
  const auto index = environment.number("JOB_COMPLETION_INDEX");
  if (!index) return std::nullopt;
  if (environment.has("RANK") && environment.has("WORLD_SIZE") &&
      !environment.has("DHP_WORLD_SIZE"))
    return std::nullopt;  // the pod's template derives RANK and WORLD_SIZE from the index
  check(environment.has("DHP_WORLD_SIZE"), "JOB_COMPLETION_INDEX is ", *index,
        ", but nothing says how many ranks there are; set DHP_WORLD_SIZE and DHP_MASTER_ADDR for "
        "all pods, or unset JOB_COMPLETION_INDEX where each pod trains by itself");
  return read_pod(environment, "Kubernetes", "JOB_COMPLETION_INDEX", "DHP_WORLD_SIZE");
}

}  // namespace dhp::detail
