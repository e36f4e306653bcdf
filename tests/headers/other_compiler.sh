#!/usr/bin/env bash
# other_compiler.sh COMPILER OTHER COMMAND...: runs the command with OTHER in COMPILER's place.
compiler=$1 other=$2
shift 2
command=()
for word in "$@"; do
  [ "$word" != "$compiler" ] || word=$other
  command+=("$word")
done
export CCACHE_SLOPPINESS=pch_defines,time_macros  # without it ccache caches nothing that includes what is precompiled
# A precompiled header names the files of its tree, so that another tree can't use it.
[[ " $* " != *.gch\ * && " $* " != *.pch\ * ]] || export CCACHE_DISABLE=1
exec "${command[@]}"
