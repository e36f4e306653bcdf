# shellcheck shell=bash
# Sourced by scripts for Slurm: starts a Slurm with one node for $ranks tasks on this machine, until the script ends. A
# temporary folder holds its key, settings and state, and it listens at free ports.
: "${ranks:?}"
need munged slurmctld slurmd
folder=$(mktemp -d "${TMPDIR:-/tmp}/dhp_srun_XXXXXX") || exit 1
mkdir "$folder/state" "$folder/spool"
me=$(id -un)

processes=()
end_processes() {  # ends the processes that this script has started, the last one first
  local i
  for ((i = ${#processes[@]} - 1; i >= 0; --i)); do
    kill "${processes[i]}" 2>/dev/null
    for _ in {1..300}; do kill -0 "${processes[i]}" 2>/dev/null || break; sleep 0.1; done
    kill -9 "${processes[i]}" 2>/dev/null
    wait "${processes[i]}" 2>/dev/null
  done
  rm -rf "$folder"
}
trap end_processes EXIT
trap 'exit 143' TERM
trap 'exit 130' INT

fail() {
  echo "slurm.sh: $1" >&2
  tail -n 20 "$folder"/*.log >&2
  exit 1
}
await() {  # await WHAT COMMAND...: waits up to 100 s until the command succeeds; fails if a daemon ends
  local what=$1
  shift
  for _ in {1..1000}; do
    "$@" >/dev/null 2>&1 && return
    for process in "${processes[@]}"; do
      kill -0 "$process" 2>/dev/null || fail "a daemon has ended before there was $what"
    done
    sleep 0.1
  done
  fail "there is no $what after 100 s"
}

(umask 077 && head -c 1024 /dev/urandom >"$folder/munge.key")
# --force: munged would reject a socket in a folder that other users cannot enter, but no other user needs it.
munged --foreground --force --socket="$folder/munge.socket" --key-file="$folder/munge.key" \
  --pid-file="$folder/munge.pid" --seed-file="$folder/munge.seed" >"$folder/munged.log" 2>&1 &
processes+=($!)
await "a socket of munged" test -S "$folder/munge.socket"

host=$(hostname -s)
control_port=$(free_port)
cat >"$folder/slurm.conf" <<CONF
ClusterName=dhp
FirstJobId=$((1 + RANDOM))
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$control_port
SlurmdPort=$(free_port "$control_port")
SlurmUser=$me
SlurmdUser=$me
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SchedulerType=sched/builtin
SlurmdParameters=config_overrides
InactiveLimit=0
NodeName=$host NodeAddr=127.0.0.1 CPUs=$ranks State=UNKNOWN
PartitionName=all Nodes=$host Default=YES MaxTime=INFINITE State=UP
CONF
export SLURM_CONF=$folder/slurm.conf
for daemon in slurmctld slurmd; do
  "$daemon" -D >"$folder/$daemon.out.log" 2>&1 &
  processes+=($!)
done
idle() { [ "$(sinfo --noheader --format=%t)" = idle ]; }
await "an idle node" idle

# Removes the variables of an allocation in which this script may run, so that srun does not start a step of it.
for name in $(compgen -e SLURM_); do [ "$name" = SLURM_CONF ] || unset "$name"; done
