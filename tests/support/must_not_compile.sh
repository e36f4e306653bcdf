#!/usr/bin/env bash
# must_not_compile.sh FILE COMPILER...: FILE compiles with -DGOOD; without, the compiler refuses it
# with the text that FILE promises in a line `// error: <text>`.
set -u
file=$1
shift
expected=$(sed -n 's|^// error: ||p' "$file")
if [ -z "$expected" ]; then
  echo "$file has no line '// error: <what the compiler must say>'"
  exit 1
fi
if ! "$@" -fsyntax-only -DGOOD "$file"; then
  echo "$file: does not even compile with -DGOOD"
  exit 1
fi
if said=$("$@" -fsyntax-only "$file" 2>&1); then
  echo "$file: compiles, but must not"
  exit 1
fi
if ! grep -qF -- "$expected" <<<"$said"; then
  echo "$file: refused, but not with '$expected':"
  echo "$said"
  exit 1
fi
