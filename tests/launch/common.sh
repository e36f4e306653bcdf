# shellcheck shell=bash
# Shared by the launchers' scripts, which are called as SCRIPT N PROGRAM ARGS... and source this file with "$@".
set -u
if [ $# -lt 2 ] || ! [[ $1 =~ ^[1-9][0-9]*$ ]]; then
  echo "usage: $(basename "$0") N PROGRAM ARGS..." >&2
  exit 2
fi
# DHP_LAUNCH_SECONDS: time limit of a job, after which it is ended (default 600).
# shellcheck disable=SC2034  # the scripts use it
limited=(timeout --kill-after=5 "${DHP_LAUNCH_SECONDS:-600}")

need() {  # need PROGRAM...: skips the script if a program is missing
  local program
  for program in "$@"; do
    command -v "$program" >/dev/null || { echo "skipped: there is no $program here"; exit 77; }
  done
}
# shellcheck disable=SC2120
free_port() {  # free_port [TAKEN]: prints a port without a listener, not TAKEN, below the ephemeral ports
  local port
  while :; do
    port=$((10000 + RANDOM % 9000))
    [ "$port" = "${1:-}" ] || (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
  done
  echo "$port"
}
