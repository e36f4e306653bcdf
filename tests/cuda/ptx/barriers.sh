#!/usr/bin/env bash
# barriers.sh FOLDER TEST_PTX TABLE PTX...: leaves out the barriers of the kernels in FOLDER, one at a time. A test must
# fail for every missing barrier.
set -u
folder=$1
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Finds the barriers that each file of tests reaches, and the file's run time.
for file in $("$@" -- --list-test-cases --reporters=xml | grep -o '/cuda/[a-z_]*\.cpp' | grep -v _slow | sort -u); do
  start=$(date +%s%N)
  DHP_LIST_BARRIERS=1 "$@" -- --source-file="*$file" --minimal | sed -n 's/^barrier //p' >"$work/reached"
  sed "s|\$| $(($(date +%s%N) - start)) $file|" "$work/reached" >>"$work/all"
done
missed=0 sites=0
# Excludes the barrier in the concept of a block, which no thread runs.
for site in $(cd "$folder" && awk '/^concept/ { concept = 1 } /^};/ { concept = 0 }
  /block\.sync\(\)/ && !concept { print substr(FILENAME, 3) ":" FNR }' ./*.hpp); do
  sites=$((sites + 1)) red=""
  for file in $(awk -v site="$site" '$1 == site' "$work/all" | sort -n -k 2 | awk '{ print $3 }'); do  # fastest first
    DHP_LEAVE_OUT=$site "$@" -- --source-file="*$file" --abort-after=1 >"$work/log" 2>&1 || { red=$file && break; }
  done
  if [ -z "$red" ]; then
    echo "$site: left out, and no test is red" && missed=$((missed + 1))
  else
    echo "$site: $red: $(grep -om1 'races; the first: .*' "$work/log" || grep -m1 -A2 'ERROR' "$work/log" | tr '\n' ' ')"
  fi
done
echo "$sites barriers, $((sites - missed)) found"
[ "$missed" -eq 0 ] && [ "$sites" -gt 0 ]
