#!/usr/bin/env bash
# alone.sh [--together] HEADER... -- COMPILER...: each header compiles as the only include, and included twice.
# A header of an optional library that this machine lacks is skipped, aloud. --together: it is enough that all of them
# compile as one, for a second compiler, which has to read them, and need not find out again what they forgot to include.
set -u
together=false
[ "$1" != --together ] || { together=true && shift; }
headers=()
while [ "$1" != -- ]; do
  headers+=("$1")
  shift
done
shift
optional="fatal error: '?((zlib|png|jpeglib|mpi|nccl|cuda|cublas|cudnn)[a-zA-Z_]*\.h|(gloo|nvtx3|openssl|Eigen)/[^':]*)"
name_of() { echo "dhp/${1##*/include/dhp/}"; }
if $together && for header in "${headers[@]}"; do echo "#include <$(name_of "$header")>"; done |
  "$@" -fsyntax-only -x c++ - >/dev/null 2>&1; then
  exit 0
fi
status=0
for header in "${headers[@]}"; do
  name=$(name_of "$header")
  if said=$(printf '#include <%s>\n#include <%s>\n' "$name" "$name" | "$@" -fsyntax-only -x c++ - 2>&1); then
    continue
  elif [[ $said =~ $optional ]]; then
    echo "skipped: $name needs ${BASH_REMATCH[1]}, which is not here"
  else
    printf '%s\n%s does not compile alone\n' "$said" "$name"
    status=1
  fi
done
exit $status
