#!/usr/bin/env bash
# empty_roots.sh [COMMAND...]: runs README's first command with few steps, or COMMAND, on fresh systems: Debian 12 and
# Debian 13 with several sets of packages. With all packages it only configures: this machine's own build has them, too.
set -u
cd "$(dirname "$0")/.." || exit 1
. .ci/parts.sh
# packages FILE BEGIN: prints the packages in FILE's command that begins with BEGIN.
packages() {
  awk -v begin="$2" 'index($0, begin) == 1 { on = 1; $0 = substr($0, length(begin) + 1) }
    on { for (i = 1; i <= NF; ++i) if (sub(/^optional:/, "", $i) || $i ~ /^[a-z][a-z0-9.+-]*$/) print $i }
    on && !/\\$/ { exit }' "$1"
}
mapfile -t trainers < <(packages README.md "sudo apt install")
mapfile -t everything < <(packages tests/run.sh 'part "install what is missing" bash .ci/install_packages.sh')
if [ ${#trainers[@]} -lt 9 ] || [ ${#everything[@]} -lt 30 ]; then
  echo "README.md or tests/run.sh has its list of packages no more where $0 looks for it" >&2
  exit 1
fi
command=(bash examples/quickstart.sh --steps 3)
[ $# -eq 0 ] || command=("$@")
scratch=$(mktemp -d) || exit 1
trap '.ci/root.sh remove "$scratch"' EXIT

# in_empty_root PACKAGE...: runs the command on a copy of this tree's files in an empty system with these packages.
in_empty_root() {
  local status=0
  .ci/root.sh make "$scratch/root" "$@" || { status=$?; [ $status -eq 77 ] && exit 0; return $status; }
  mkdir "$scratch/root/dhp"
  git ls-files -co --exclude-standard | while read -r file; do [ ! -e "$file" ] || echo "$file"; done |
    tar -c -T - | tar -x -C "$scratch/root/dhp"
  # shellcheck disable=SC2016
  .ci/root.sh run "$scratch/root" bash -c 'cd /dhp && exec "$@"' bash "${command[@]}" || status=$?
  .ci/root.sh remove "$scratch/root"
  return $status
}
part "nothing installed" in_empty_root
part "README's packages for the trainers" in_empty_root "${trainers[@]}"
DHP_SUITE=trixie part "libssl-dev and pkg-config, Debian 13" in_empty_root libssl-dev pkg-config
[ $# -ne 0 ] || command=(cmake --preset release)
part "everything optional" in_empty_root "${everything[@]}"
parts_done "All of these systems work."
