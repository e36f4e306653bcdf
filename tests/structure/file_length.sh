#!/usr/bin/env bash
# file_length.sh ROOT: no source file is longer than 500 lines, and no header of include/ than 400.
cd "$1" || exit 1
long=$(find CMakeLists.txt cmake include tests examples bench .ci -type f \
  ! -name '*.txt' ! -name '*.json' ! -name '*.md' -exec wc -l {} + |
  awk '$2 != "total" && $1 > ($2 ~ /^include\// ? 400 : 500)')
[ -z "$long" ] || { echo "too long:"; echo "$long"; exit 1; }
