#!/usr/bin/env bash
# alone.sh HEADER... -- COMPILER...: each header compiles as the only include, and included twice.
# A header of an optional library that this machine lacks is skipped, aloud.
set -u
headers=()
while [ "$1" != -- ]; do
  headers+=("$1")
  shift
done
shift
optional="fatal error: '?((zlib|png|jpeglib|mpi|nccl|cuda|cublas|cudnn)[a-zA-Z_]*\.h|(gloo|nvtx3|openssl)/[^':]*)"
status=0
for header in "${headers[@]}"; do
  name=dhp/${header##*/include/dhp/}
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
