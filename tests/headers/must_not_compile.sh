#!/usr/bin/env bash
# must_not_compile.sh FILE... -- COMPILER...: each file must compile with -DGOOD. Without it, the compiler must print
# the texts of the file's lines `// error: <text>`.
set -u
files=()
while [ "$1" != -- ]; do
  files+=("$1")
  shift
done
shift
status=0
for file in "${files[@]}"; do
  "$@" -fsyntax-only -DGOOD "$file" || { echo "$file does not even compile with -DGOOD"; exit 1; }
  printed=$("$@" -fsyntax-only "$file" 2>&1)
  grep -q '^// error: ' "$file" || { echo "$file has no line '// error: <what the compiler must say>'"; status=1; }
  while read -r expected; do
    grep -qF -- "$expected" <<<"$printed" && continue
    printf '%s\n' "$file: not refused with '$expected'" "$printed"
    status=1
  done < <(sed -n 's|^// error: ||p' "$file")
done
exit $status
