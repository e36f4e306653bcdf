#!/usr/bin/env bash
# srun.sh N PROGRAM ARGS...: runs PROGRAM as N tasks of srun on this machine, under a temporary Slurm. Exits with srun's
# status, or with 77 if Slurm is missing.
PATH=$PATH:/usr/sbin:/sbin
. "$(dirname "$0")/common.sh"
need srun
ranks=$1
shift
. "$(dirname "$0")/slurm.sh"
"${limited[@]}" srun --quiet --overcommit --ntasks="$ranks" "$@" <&0 &
processes+=($!)
wait $!  # during `wait` traps run at once; a foreground command would delay them
