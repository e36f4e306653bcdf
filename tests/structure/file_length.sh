#!/usr/bin/env bash
# file_length.sh ROOT: no source file is longer than 500 lines, and no header of include/ than 400; no line of C++ has
# more than 120 columns.
cd "$1" || exit 1
long=$(find CMakeLists.txt cmake include tests examples bench .ci -type f \
  ! -name '*.txt' ! -name '*.json' ! -name '*.md' -exec wc -l {} + |
  awk '$2 != "total" && $1 > ($2 ~ /^include\// ? 400 : 500)')
[ -z "$long" ] || { echo "too long:"; echo "$long"; exit 1; }
export LC_ALL=C.UTF-8
wide=$(find include tests examples bench docs/site -name '*.[chi]p[p]' -exec grep -nHE '^.{121}' {} +)
[ -z "$wide" ] || { echo "too wide:"; echo "$wide"; exit 1; }
