#!/usr/bin/env bash
# cases.sh PROGRAM FILE...: checks that every case of PROGRAM is in one of the files, because ctest runs file by file.
set -u
program=$1
shift
count() { "$program" --no-skip --count "$@" | sed -n 's/.*filters: *//p'; }
all=$(count)
sum=0
for file in "$@"; do
  sum=$((sum + $(count "--source-file=*/tests/${file##*/tests/}")))
done
[ "$sum" -eq "$all" ] || { echo "$program has $all cases, its files only $sum"; exit 1; }
echo "$all cases in $# files"
