#!/usr/bin/env bash
# other_compiler.sh COMPILER OTHER COMMAND...: runs the command with OTHER in COMPILER's place.
compiler=$1 other=$2
shift 2
command=()
for word in "$@"; do
  [ "$word" != "$compiler" ] || word=$other
  command+=("$word")
done
exec "${command[@]}"
