#!/usr/bin/env bash
# run.sh [--check] [WORD...]: puts the faults of list.txt into the code, one at a time; the fault's test must fail
# ("red"). With WORDs, only lines with one of them are used. --check only tests whether each fault fits the code.
#
# A line is `TEST [FILE]: WORDS | OLD => NEW`. OLD must be in FILE exactly once. The default FILE is dhp/TEST.hpp. The
# tree does not change: the compiler first searches a separate folder, which has the file with the fault.
set -uo pipefail
export LC_ALL=C
cd "$(dirname "$0")/../.." || exit 2
check=0
[ "${1:-}" != --check ] || { check=1 && shift; }
words=$(IFS='|' && echo "$*")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
compile=("${CXX:-c++}" -std=c++20 -O0 -march=native -U_FORTIFY_SOURCE -DDOCTEST_CONFIG_VOID_CAST_EXPRESSIONS
  -DDHP_HAS_PROCESSES=1 -DDHP_HAS_ZLIB=1 -DDHP_HAS_PNG=1 -DDHP_HAS_JPEG=1 -DDHP_HAS_UTF8PROC=1)
folders=(-Iinclude -I. -Itests -isystem "${CUDA_HOME:-/usr/local/cuda}/include")

# try FOLDER TEST COLOR WORDS: compiles and runs a test with the files of a folder. It must be COLOR, red or green.
try() {
  local kernels=() color=green
  [[ $2 != cuda/* || $2 == *_fake ]] || kernels=(-include tests/cuda/emulator.hpp -include dhp/cuda/kernels.hpp)
  if ! "${compile[@]}" "-I$1" "${folders[@]}" "${kernels[@]}" "tests/$2.cpp" "$work"/*.o -o "$1/test" \
    -lz -lpng -ljpeg -lutf8proc -lcrypto &>"$1/log"; then
    color="not compiled: $(grep -m 1 error "$1/log")"
  elif ! TMPDIR=$1 timeout 300 "$1/test" --abort-after=1 &>"$1/log"; then
    color=red
  fi
  echo "$color: $2: $4"
  [ "$color" = "$3" ] || echo "$2: $4" >>"$work/wrong"
  rm -f "$1/test"
}
# later ARGUMENT...: runs try in the background, at most one per core.
later() {
  while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n; done
  try "$@" &
}

tests=() names=() count=0
while IFS= read -r line; do
  [[ $line =~ $words ]] || continue
  [[ $line =~ ^([a-z0-9_/]+)(\ ([a-z0-9_/]+\.hpp))?:\ ([^|]+)\ \|\ (.+)\ =\>\ ?(.*)$ ]] ||
    { echo "not a fault: $line" && exit 2; }
  test=${BASH_REMATCH[1]} file=${BASH_REMATCH[3]:-dhp/${BASH_REMATCH[1]}.hpp}
  tests+=("$test") names+=("${BASH_REMATCH[4]}") old=${BASH_REMATCH[5]} new=${BASH_REMATCH[6]}
  path=include/$file
  [ -f "$path" ] || path=$file
  text=$(<"$path")
  front=${text%%"$old"*}
  rest=${text:${#front}+${#old}}
  [[ -f tests/$test.cpp && $front != "$text" && $rest != *"$old"* ]] ||
    echo "does not fit the code: $line" | tee -a "$work/wrong"
  count=$((count + 1))
  [ $check -eq 1 ] && continue
  mkdir -p "$work/$count/${file%/*}"
  echo "$front$new$rest" >"$work/$count/$file"
done <tests/faults/list.txt
[ ! -e "$work/wrong" ] || exit 1
[ $check -eq 0 ] || { echo "$count faults fit the code" && exit; }

"${compile[@]}" "${folders[@]}" -c tests/support/doctest_main.cpp -o "$work/main.o"
"${compile[@]}" "${folders[@]}" -c tests/cuda/host_kernels.cpp -o "$work/kernels.o"
for test in $(printf '%s\n' "${tests[@]}" | sort -u); do
  mkdir -p "$work/none/$test"
  later "$work/none/$test" "$test" green "without a fault"
done
wait
[ ! -e "$work/wrong" ] || exit 1
for ((at = 0; at < count; ++at)); do later "$work/$((at + 1))" "${tests[at]}" red "${names[at]}"; done
wait
[ ! -e "$work/wrong" ] || { echo "not red:" && cat "$work/wrong" && exit 1; }
echo "$count faults, all red, in $((SECONDS / 60)) minutes"
