#!/usr/bin/env bash
# hydra.sh N PROGRAM ARGS...: runs PROGRAM as N ranks of Hydra, the launcher of MPICH and Intel MPI, on this machine.
# Exits with the status of Hydra; with 77 where there is none.
. "$(dirname "$0")/common.sh"
need mpiexec.hydra
ranks=$1
shift
exec "${limited[@]}" mpiexec.hydra -launcher fork -n "$ranks" "$@"
