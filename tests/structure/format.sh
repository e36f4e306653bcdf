#!/usr/bin/env bash
# format.sh ROOT: clang-format agrees with every source file that git knows.
cd "$1" || exit 1
command -v clang-format >/dev/null || { echo "skipped: there is no clang-format"; exit 77; }
# Debian 12's version decides, because other versions break lines differently.
version=$(clang-format --version | sed -E 's/.*version ([0-9]+).*/\1/')
[ "$version" = 14 ] || { echo "skipped: clang-format 14 decides, this is $version"; exit 77; }
git rev-parse --is-inside-work-tree >/dev/null 2>&1 || { echo "skipped: not a git checkout"; exit 77; }
git ls-files -z '*.hpp' '*.cpp' '*.cuh' '*.cu' | xargs -0 -r clang-format --dry-run --Werror
