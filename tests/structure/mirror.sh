#!/usr/bin/env bash
# mirror.sh SOURCE: tests/FOLDER/NAME* must test include/dhp/FOLDER/NAME.hpp; the test of an operation also tests its
# kernels in cpu/. For the other headers, and only for these, tests/structure/tested_by.txt names the tests.
set -u
cd "$1" || exit 1
list=tests/structure/tested_by.txt
wrong=0
say() { echo "$*"; wrong=1; }
# Returns whether a header has a test of its name.
own() {
  local name=${1%.*}
  compgen -G "tests/$name.*" || compgen -G "tests/${name}_*" || { [[ $name == cpu/* ]] && compgen -G "tests/ops/${name#cpu/}.*"; }
} >/dev/null

declare -A used=()
count=0
while read -r header; do
  count=$((count + 1))
  own "$header" && continue
  found=
  while read -r pattern _; do
    # shellcheck disable=SC2053
    [[ $header == $pattern ]] && found=$pattern && used[$pattern]=1
  done < <(grep -v '^#' "$list")
  [ -n "$found" ] || say "include/dhp/$header has no test of its name, and $list does not say what tests it"
done < <(cd include/dhp && find . -mindepth 2 -name '*.?pp' -o -mindepth 2 -name '*.cuh' | sed 's|^\./||' | sort)
while read -r pattern tests; do
  [ -n "${used[$pattern]:-}" ] || say "$list: $pattern is not needed"
  for test in $tests; do
    [ -e "tests/$test" ] || say "$list: there is no tests/$test"
  done
done < <(grep -v '^#' "$list")
echo "$count headers"
exit $wrong
