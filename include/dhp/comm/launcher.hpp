// Launchers: what the variables of each of them say of this process. Which one is believed, and whether all of it
// fits together, is for ProcessRank.
#pragma once

#include <dhp/comm/environment.hpp>
#include <dhp/comm/host_port.hpp>
#include <dhp/comm/node_list.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace dhp {

struct LauncherSays {
  std::string launcher;
  std::string rank_name;  // of the variables that rank and size are from
  std::string size_name;
  int rank = 0;
  int size = 1;
  std::optional<int> local_rank{};  // among the ranks of this machine
  std::optional<int> local_size{};  // how many those are
  std::string master{};  // of rank 0, where this launcher has variables of its own for it
  std::optional<int> port{};
  std::string job = "job";  // equal on all ranks of a start; differs from start to start if it can
};

/// Rank and size, from variables of these names. Throws where one of them is not set.
[[nodiscard]] inline LauncherSays read_pair(const Environment& environment, std::string launcher,
                                            std::string rank_name, std::string size_name) {
  const auto rank = environment.number(rank_name);
  const auto size = environment.number(size_name);
  check(rank && size, rank_name, " and ", size_name,
        " belong together, but only one of them is set");
  return {std::move(launcher), std::move(rank_name), std::move(size_name), *rank, *size};
}

/// Set by people and scripts; overrules everything else.
[[nodiscard]] inline std::optional<LauncherSays> explicit_rank(const Environment& environment) {
  if (!environment.has("DHP_RANK")) return std::nullopt;
  return read_pair(environment, "DHP_RANK and DHP_WORLD_SIZE", "DHP_RANK", "DHP_WORLD_SIZE");
}

/// What scripts and many launchers set.
[[nodiscard]] inline std::optional<LauncherSays> plain_rank(const Environment& environment) {
  if (!environment.has("RANK") && !environment.has("WORLD_SIZE")) return std::nullopt;
  auto says = read_pair(environment, "RANK and WORLD_SIZE", "RANK", "WORLD_SIZE");
  says.local_rank = environment.number("LOCAL_RANK");
  says.local_size = environment.number("LOCAL_WORLD_SIZE");
  return says;
}

/// torchrun counts the restarts of a machine's ranks for each machine apart, so that ranks on several machines may
/// have different counts: only on one machine do they tell one start from the next.
[[nodiscard]] inline std::optional<LauncherSays> torchrun_rank(const Environment& environment) {
  if (!environment.has("TORCHELASTIC_RUN_ID")) return std::nullopt;
  auto says = read_pair(environment, "torchrun", "RANK", "WORLD_SIZE");
  says.local_rank = environment.number("LOCAL_RANK");
  says.local_size = environment.number("LOCAL_WORLD_SIZE");
  says.job = concat("torchrun-", environment.text("TORCHELASTIC_RUN_ID"), "-",
                    environment.text("MASTER_PORT"));
  if (environment.text("GROUP_WORLD_SIZE") == "1")
    says.job += "-" + environment.text("TORCHELASTIC_RESTART_COUNT");
  return says;
}

[[nodiscard]] inline std::optional<LauncherSays> open_mpi_rank(const Environment& environment) {
  if (!environment.has("OMPI_COMM_WORLD_RANK")) return std::nullopt;
  auto says = read_pair(environment, "Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
  says.local_rank = environment.number("OMPI_COMM_WORLD_LOCAL_RANK");
  says.local_size = environment.number("OMPI_COMM_WORLD_LOCAL_SIZE");
  says.job = "openmpi";
  for (const char* name : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"})
    if (const auto id = environment.text(name); says.job == "openmpi" && !id.empty())
      says.job += "-" + id;
  return says;
}

/// Tasks of srun. A batch script and a shell in an allocation see Slurm's variables too, but are no tasks: they have
/// no step, or one of the two numbers that Slurm keeps for them.
[[nodiscard]] inline std::optional<LauncherSays> slurm_rank(const Environment& environment) {
  for (const char* name : {"SLURM_PROCID", "SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS"})
    if (!environment.has(name)) return std::nullopt;
  const auto step = environment.text("SLURM_STEP_ID");
  if (step == "4294967290" || step == "4294967291") return std::nullopt;  // interactive, batch
  auto says = read_pair(environment, "Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS");
  says.local_rank = environment.number("SLURM_LOCALID");
  const auto node = environment.number("SLURM_NODEID");
  if (const auto tasks = environment.text("SLURM_STEP_TASKS_PER_NODE"); node && !tasks.empty())
    says.local_size = static_cast<int>(
        std::min<std::int64_t>(tasks_on_node(tasks, *node), std::numeric_limits<int>::max()));
  for (const char* name : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"})
    if (const auto nodes = environment.text(name); says.master.empty() && !nodes.empty())
      says.master = first_host(nodes);
  says.job = concat("slurm-", environment.text("SLURM_JOB_ID"), ".", step, ".",
                    environment.number("SLURM_RESTART_COUNT").value_or(0));
  return says;
}

/// MPICH, Intel MPI and others that come with Hydra. Slurm sets the same variables when MPI asks it to: then it is
/// Slurm that knows more.
[[nodiscard]] inline std::optional<LauncherSays> mpich_rank(const Environment& environment) {
  if (!environment.has("PMI_RANK")) return std::nullopt;
  auto says = read_pair(environment, "MPICH", "PMI_RANK", "PMI_SIZE");
  const auto slurm = slurm_rank(environment);
  if (slurm && slurm->rank == says.rank && slurm->size == says.size) return std::nullopt;
  says.local_rank = environment.number("MPI_LOCALRANKID");
  says.local_size = environment.number("MPI_LOCALNRANKS");
  says.job = "mpich";
  return says;
}

/// The name that the pods of a job share: theirs end in "-" and their index.
[[nodiscard]] inline std::string name_of_pods(const Environment& environment, int index) {
  auto name = environment.text("HOSTNAME");
  const auto end = concat("-", index);
  if (name.size() <= end.size() || !name.ends_with(end)) return {};
  name.resize(name.size() - end.size());
  return name;
}

/// A pod of Kubeflow's TrainJob or PyTorchJob, whose variables are made for torchrun. Without that, a pod is a rank.
[[nodiscard]] inline std::optional<LauncherSays> kubeflow_rank(const Environment& environment) {
  if (!environment.has("PET_NODE_RANK")) return std::nullopt;
  auto says = read_pair(environment, "Kubeflow", "PET_NODE_RANK", "PET_NNODES");
  const auto ranks = environment.text("PET_NPROC_PER_NODE");
  check(ranks.empty() || ranks == "1", "PET_NPROC_PER_NODE is \"", ranks,
        "\", but this process is one rank; set it to 1 for one rank a pod, or start the ranks of "
        "a pod by torchrun --no_python");
  says.local_rank = 0;
  says.local_size = 1;
  says.master = environment.text("PET_MASTER_ADDR");
  if (const auto port = environment.text("PET_MASTER_PORT"); !port.empty())
    says.port = HostPort::port_number("PET_MASTER_PORT", port);
  if (const auto name = name_of_pods(environment, says.rank); !name.empty()) says.job = name;
  return says;
}

/// A pod of an indexed Job or a JobSet. It knows its index, and nothing of the others.
[[nodiscard]] inline std::optional<LauncherSays> kubernetes_rank(const Environment& environment) {
  const auto index = environment.number("JOB_COMPLETION_INDEX");
  if (!index) return std::nullopt;
  if (environment.has("RANK") && environment.has("WORLD_SIZE") &&
      !environment.has("DHP_WORLD_SIZE"))
    return std::nullopt;  // made from the index, by whoever wrote the pod's template
  check(environment.has("DHP_WORLD_SIZE"), "JOB_COMPLETION_INDEX is ", *index,
        ", but nothing says how many ranks there are; set DHP_WORLD_SIZE and DHP_MASTER_ADDR for "
        "all pods, or unset JOB_COMPLETION_INDEX where each pod trains by itself");
  auto says = read_pair(environment, "Kubernetes", "JOB_COMPLETION_INDEX", "DHP_WORLD_SIZE");
  says.local_rank = 0;
  says.local_size = 1;
  if (const auto name = name_of_pods(environment, says.rank); !name.empty()) says.job = name;
  return says;
}

}  // namespace dhp
