#!/usr/bin/env bash
# pictures_test.sh PYTHON DRAW PICTURES SCRATCH: draw.py --check reports pictures that differ from the programs' output,
# and missing ones. draw.py draws a table of curves, and refuses any other file.
set -eu
python=$1 draw=$2 pictures=$3
rm -rf "$4" && mkdir -p "$4/programs" "$4/pictures" && cd "$4"
expect() { # STATUS WORDS ARGUMENTS...
  local status=$1 words=$2 code=0
  shift 2
  "$python" "$draw" "$@" >log 2>&1 || code=$?
  if [ $code -eq 77 ] && [ "$status" -ne 77 ]; then cat log && exit 77; fi
  if [ $code -ne "$status" ] || ! grep -qF "$words" log; then
    echo "draw.py $* ends with $code, not with $status and \"$words\":" && cat log && exit 1
  fi
}
cp "$pictures"/mesh.svg pictures
expect 0 "mesh" --check programs pictures --only mesh
sed -i 's/pipeline axis/pipe line axis/' pictures/mesh.svg
expect 1 "mesh.svg is not what the programs say" --check programs pictures --only mesh
sed -i 's/Matplotlib v[0-9.]*/Matplotlib v0.9/' pictures/mesh.svg
expect 77 "was drawn by matplotlib 0.9" --check programs pictures --only mesh
expect 77 "lesson_9_schedules is not built" --check programs pictures --only schedules
expect 1 "there is no picture cube" programs pictures --only cube
one='{"samples": [1, 2], "bytes": [10, 20], "loss": [3, 2.5]}'
echo "{\"cases\": {\"plain\": $one, \"late\": $one}}" >ideas.json
expect 0 "ideas" programs pictures --curves ideas.json
grep -q ">late<" pictures/ideas.svg
sed -i 's/3, 2.5/3/' ideas.json
expect 1 "ideas.json is no table of cases" programs pictures --curves ideas.json
