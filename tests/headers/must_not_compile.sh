#!/usr/bin/env bash
# must_not_compile.sh FILE... -- COMPILER...: the files must compile with -DGOOD. Without it, the compiler must print
# the text of each file's line `// error: <text>`.
set -u
files=()
while [ "$1" != -- ]; do
  files+=("$1")
  shift
done
shift
together=$(mktemp --suffix=.cpp)
trap 'rm -f "$together"' EXIT
# Includes the headers once, and each file in its own namespace.
awk '/^[^#\/]/ { nextfile } { print }' "${files[@]}" >"$together"
for at in "${!files[@]}"; do
  printf 'namespace case_%s {\n#include "%s"\n}\n' "$at" "${files[at]}" >>"$together"
done
if ! "$@" -fsyntax-only -DGOOD "$together"; then
  echo "these do not even compile with -DGOOD: ${files[*]}"
  exit 1
fi
said=$("$@" -fsyntax-only "$together" 2>&1)
status=0
for file in "${files[@]}"; do
  expected=$(sed -n 's|^// error: ||p' "$file")
  if [ -z "$expected" ]; then
    echo "$file has no line '// error: <what the compiler must say>'"
    status=1
  elif ! grep -qF -- "$expected" <<<"$said"; then
    echo "$file: not refused with '$expected'"
    status=1
  fi
done
[ $status -eq 0 ] || echo "$said"
exit $status
