#!/usr/bin/env bash
# cases.sh PROGRAM FILE...: the cases of PROGRAM are those of the files, each of which is a test of its own.
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
