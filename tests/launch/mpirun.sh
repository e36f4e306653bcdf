#!/usr/bin/env bash
# mpirun.sh N PROGRAM ARGS...: runs PROGRAM as N ranks of Open MPI's mpirun on this machine, even on fewer cores. Exits
# with mpirun's status, or with 77 if Open MPI is missing.
. "$(dirname "$0")/common.sh"
need mpirun
if ! mpirun --version 2>/dev/null | grep -q "Open MPI"; then
  echo "skipped: the mpirun here is not Open MPI's"
  exit 77
fi
# mpirun requires these two variables from root only.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
ranks=$1
shift
exec "${limited[@]}" mpirun --oversubscribe --bind-to none -n "$ranks" "$@"
