// MpiProcess: keeps MPI initialised while a program runs, if an MPI launcher has started it.
#pragma once

#include <dhp/comm/mpi/context.hpp>
#include <dhp/comm/rendezvous/process_rank.hpp>

#include <mpi.h>

#include <cstdlib>
#include <exception>

namespace examples {

/// Returns whether MPI can be initialised in this process. MPI can connect processes of plain srun only if it offers
/// PMIx or PMI: otherwise some MPIs end them, and others give each a world of one.
[[nodiscard]] inline bool started_for_mpi(const dhp::ProcessRank& me) {
  if (me.launcher == "Open MPI" || me.launcher == "MPICH") return true;
  return me.launcher == "Slurm" &&
         (std::getenv("PMIX_RANK") != nullptr || std::getenv("PMI_RANK") != nullptr);
}

class MpiProcess : dhp::detail::NonCopyable {
 public:
  MpiProcess() {
    int level = MPI_THREAD_SINGLE;
    dhp::check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level),
                   "MPI_Init_thread");
  }
  /// After a failure other ranks may never reach MPI_Finalize, so the launcher ends the job.
  ~MpiProcess() {
    if (std::uncaught_exceptions() > 0) return;
    MPI_Finalize();
  }
  [[nodiscard]] static int size() {
    int size = 0;
    dhp::check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
    return size;
  }
};

}  // namespace examples
