#!/usr/bin/env bash
# train_sbatch.sh N SCRIPT PROGRAMS: tests a batch script with N tasks on this machine, under a temporary Slurm. It must
# train, resume from its checkpoint when it is started again, remove its secret, and end with the program's status.
PATH=$PATH:/usr/sbin:/sbin
. "$(dirname "$0")/common.sh"
need sbatch scancel
ranks=$1
script=$(realpath "$2") programs=$3
[ -x "$programs/train_bert" ] || { echo "skipped: train_bert is not built"; exit 77; }
PATH=$(cd "$programs" && pwd):$PATH
. "$(dirname "$0")/slurm.sh"
# shellcheck disable=SC2317  # called by the trap
end_jobs() {  # the jobs' daemons are no children of this script and would outlive it
  local left
  for _ in {1..600}; do
    left=$(squeue --noheader --format=%i 2>/dev/null)
    [ -n "$left" ] || break
    # shellcheck disable=SC2086  # one argument for each job
    scancel $left 2>/dev/null
    sleep 0.1
  done
}
trap 'end_jobs; end_processes' EXIT

wrong=0
say() { echo "$*"; wrong=1; }
mkdir "$folder/home" && cd "$folder/home" || exit 1
export TRAIN_FOLDER=$folder/home/run TRAIN_SAVE_EVERY=1
batch() {  # runs a batch job; sbatch --wait would poll only every few seconds
  local job
  job=$(sbatch --parsable --overcommit --nodes=1 --ntasks="$ranks" --output=log "$script" "$@") || return
  for _ in {1..3000}; do
    scontrol show job "$job" >state
    grep -qE 'JobState=(PENDING|CONFIGURING|RUNNING|COMPLETING)' state || break
    sleep 0.1
  done
  return "$(sed -nE 's/.* ExitCode=([0-9]+):.*/\1/p' state)"
}
train=(train_bert --global-batch $((4 * ranks)) --micro-batch 4 --samples 64 --vocabulary-size 256)

# shellcheck disable=SC2016  # the tasks' shells expand it
batch bash -c 'stat -c "secret %a %s" "$DHP_JOB_SECRET_FILE"; exec "$@"' bash "${train[@]}" --steps 2
status=$?
if grep -q "built without communication between processes" log; then
  echo "skipped: train_bert knows no ranks as processes"
  exit 77
fi
[ $status -eq 0 ] || say "the status is $status"
grep -q "layout ${ranks}x1x1" log || say "it does not train on $ranks ranks"
[ "$(grep -cx "secret 600 45" log)" -eq "$ranks" ] || say "the secret is not 45 bytes for their owner alone"
[ -e run/model/latest ] || say "nothing is saved"
batch "${train[@]}" --steps 3 --tensor-parallel "$ranks" || say "the second start fails"
grep -q "goes on after step 2" log || say "the second start does not go on from what was saved"
grep -q "layout 1x${ranks}x1" log || say "a layout that is given is not taken"
[ "$(grep -c '"loss"' run/metrics.jsonl)" -eq 3 ] || say "the metrics are not those of three steps"
if [ ! -d run ] || [ -e run/secret ]; then say "the secret is left behind"; fi
batch bash -c 'exit 7'
status=$?
[ $status -eq 7 ] || say "the status of a program that ends with 7 is $status"
[ $wrong -eq 0 ] || cat log
exit $wrong
