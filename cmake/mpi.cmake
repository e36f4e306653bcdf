# dhp::mpi is dhp::processes with MPI: for dhp in MPI programs, and for trainers that mpirun starts. Any MPI of standard
# 3 or later works, if it is the program's own. MPI_CXX_COMPILER or MPI_HOME chooses it, as for find_package(MPI).
include_guard(GLOBAL)
include(${CMAKE_CURRENT_LIST_DIR}/processes.cmake)
if(TARGET dhp::processes)
  set(MPI_CXX_SKIP_MPICXX ON)  # skips MPI's C++ bindings, which the standard removed
  set(DHP_MPICXX ${MPI_CXX_COMPILER})  # find_program keeps it, whether it is there or not
  find_program(DHP_MPICXX NAMES mpicxx mpic++ HINTS ${MPI_HOME} ENV MPI_HOME PATH_SUFFIXES bin NO_CACHE)
  dhp_library(MPI DEBIAN libopenmpi-dev WITHOUT "there is no dhp::mpi" PACKAGE MPI COMPONENTS CXX TARGET MPI::MPI_CXX
    BY "${DHP_MPICXX}" VERSION 3.0 HEADERS mpi.h USE "MPI_Comm_free(nullptr) + (MPI_COMM_WORLD == MPI_COMM_NULL)")
endif()
dhp_part(mpi dhp::processes dhp::lib_MPI)
