#!/usr/bin/env bash
# clusters.sh scripts|options|kubernetes ROOT [PROGRAMS]: checks the templates for clusters in ROOT's docs.
#   scripts     bash and shellcheck find no error in docs/slurm and in the scripts of examples
#   options     the trainers have all options with which templates start them; 77 if PROGRAMS lacks the trainers
#   kubernetes  the numbers, names and mounts of docs/kubernetes are consistent; 77 without python3-yaml
# shellcheck disable=SC2317  # functions are called by name
set -u
here=$(cd "$(dirname "$0")" && pwd)
what=$1 root=$2 programs=${3:-}
shopt -s nullglob
wrong=0
say() { echo "$*"; wrong=1; }

check_scripts() {
  local scripts=("$root"/docs/slurm/* "$root"/examples/*.sh) script
  [ -e "$root/docs/slurm/train.sbatch" ] || say "there is no docs/slurm/train.sbatch"
  for script in "${scripts[@]}"; do bash -n "$script" || say "bash cannot read ${script#"$root"/}"; done
  if command -v shellcheck >/dev/null; then
    (cd "$root" && shellcheck -x "${scripts[@]#"$root"/}") || say "shellcheck has something to say"
  else
    echo "skipped in part: there is no shellcheck here"
  fi
  echo "${#scripts[@]} scripts"
}

# unknown FILE PROGRAM OPTION...
unknown() {
  local file=$1 program=$2 option
  shift 2
  [ $# -gt 0 ] || say "${file#"$root"/} gives $program no options"
  for option in "$@"; do
    "$programs/$program" --help | grep -qE "^ +(-h,)?$option( |$)" ||
      say "${file#"$root"/}: $program has no option $option"
  done
}
options_in() { grep -oE -- '(^|[ "(])--[a-z][a-z0-9-]*' | tr -d ' "(' | sort -u; }
check_options() {
  local program file given count=0
  for program in train_bert train_resnet50; do
    [ -x "$programs/$program" ] || { echo "skipped: $program is not built"; exit 77; }
    file=$root/docs/slurm/train.sbatch  # the array `options`, and the lines that show its use
    mapfile -t given < <(grep 'options' "$file" | grep -v '^#' | sed 's/^srun.*//' | options_in)
    unknown "$file" "$program" "${given[@]}"
    mapfile -t given < <(sed -nE "s/^# .*$program( .*)/\1/p" "$file" | options_in)
    unknown "$file" "$program" "${given[@]}"
  done
  for file in "$root"/docs/kubernetes/*.yaml; do
    program=$(grep -oE 'command: \[train_[a-z0-9]+' "$file" | cut -d[ -f2)
    [ -n "$program" ] || continue
    count=$((count + 1))
    mapfile -t given < <(grep -v '^ *#' "$file" | options_in)
    unknown "$file" "$program" "${given[@]}"
  done
  [ "$count" -gt 0 ] || say "no file of docs/kubernetes starts a trainer"
}

check_kubernetes() {
  local python
  for python in /usr/bin/python3 python3; do
    if "$python" -c 'import yaml' 2>/dev/null; then
      "$python" "$here/clusters.py" "$root"/docs/kubernetes/*.yaml || wrong=1
      return
    fi
  done
  echo "skipped: no Python here reads YAML (Debian: python3-yaml)"
  exit 77
}

case $what in
  scripts | options | kubernetes) "check_$what" ;;
  *) say "clusters.sh: scripts, options or kubernetes, not $what" ;;
esac
exit $wrong
