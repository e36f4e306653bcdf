#!/usr/bin/env bash
# srun.sh N PROGRAM ARGS...: runs PROGRAM as N tasks of srun on this machine, under a Slurm of its own, which is
# gone afterwards. Exits with the status of srun; with 77 where there is no Slurm.
PATH=$PATH:/usr/sbin:/sbin
. "$(dirname "$0")/common.sh"
need srun
ranks=$1
shift
. "$(dirname "$0")/slurm.sh"
"${limited[@]}" srun --quiet --overcommit --ntasks="$ranks" "$@" <&0 &
processes+=($!)
wait $!  # unlike a command in the foreground, this does not put off the traps
