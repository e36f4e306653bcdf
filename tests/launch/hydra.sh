#!/usr/bin/env bash
# hydra.sh N PROGRAM ARGS...: runs PROGRAM as N ranks of Hydra, the launcher of MPICH and Intel MPI, on this machine.
# Exits with Hydra's status, or with 77 if Hydra is missing.
. "$(dirname "$0")/common.sh"
need mpiexec.hydra
ranks=$1
shift
exec "${limited[@]}" mpiexec.hydra -launcher fork -n "$ranks" "$@"
