#!/usr/bin/env bash
# alone.sh HEADER... -- COMPILER...: each header compiles as the only include, and included twice.
set -u
headers=()
while [ "$1" != -- ]; do
  headers+=("$1")
  shift
done
shift
status=0
for header in "${headers[@]}"; do
  name=dhp/${header##*/include/dhp/}
  if ! printf '#include <%s>\n#include <%s>\n' "$name" "$name" | "$@" -fsyntax-only -x c++ -; then
    echo "$name does not compile alone"
    status=1
  fi
done
exit $status
