#!/usr/bin/env bash
# include_order.sh INCLUDE_DIR: a header includes its own folder and folders to its left only,
#   core -> device -> tensor -> { ops, comm, data } -> nn -> { optim, parallel } -> train -> extra
# Only entry headers include cpu/ and cuda/. dhp.hpp reaches neither of them, nor a header of CUDA's libraries. Each
# header reaches core/config.hpp, no header includes eigen.hpp, only nvcc reads .cuh, and there is no cycle.
# comm/launch.hpp (ranks as threads) includes at most 18 headers and 2,400 lines. Prints every offence.
set -u
cd "$1" || exit 1
find dhp -name '*.hpp' -o -name '*.cuh' | sort | xargs awk '
function folder(path,  parts) { return split(path, parts, "/") == 2 ? "entry" : parts[2] }
function offence(text) { print text; bad = 1 }
function allowed(from, to) {
  if (to == "entry") return from == "entry"
  if (from == "entry" || from == to) return 1
  if (to == "cpu" || to == "cuda") return 0
  if (from == "cpu" || from == "cuda") return rank[to] < rank["comm"] || to == "ops"
  return rank[to] < rank[from]
}
function visit(file, trail,  n, i, next_files) {
  if (state[file] == 2) return
  if (state[file] == 1) { offence("cycle: " trail " -> " file); return }
  state[file] = 1
  n = split(edges[file], next_files, " ")
  for (i = 1; i <= n; i++) visit(next_files[i], trail == "" ? file : trail " -> " file)
  state[file] = 2
}
function reaches(file, pattern,  n, i, next_files, found) {
  if (file ~ pattern) return file
  if (file in seen) return ""
  seen[file] = 1
  n = split(edges[file], next_files, " ")
  for (i = 1; i <= n; i++) if ((found = reaches(next_files[i], pattern)) != "") return found
  return ""
}
function weigh(file,  n, i, next_files) {  # counts the headers and lines that a file includes
  if (file in weighed) return
  weighed[file] = 1
  headers++
  length_of_all += lines[file]
  n = split(edges[file], next_files, " ")
  for (i = 1; i <= n; i++) weigh(next_files[i])
}
BEGIN {
  split("core:1 device:2 tensor:3 ops:4 comm:4 data:4 nn:5 optim:6 parallel:6 train:7 extra:8 cpu:9 cuda:9 entry:10", table, " ")
  for (i in table) { split(table[i], pair, ":"); rank[pair[1]] = pair[2] }
}
FNR == 1 {
  files[++count] = FILENAME
  once = 0
  if (!(folder(FILENAME) in rank)) offence(FILENAME ": no such folder in the house")
}
{ lines[FILENAME]++ }
/^[ \t]*#[ \t]*include/ {
  from = FILENAME
  if ($0 ~ /"/) offence(from ": quoted include: " $0)
  if (!match($0, /<[^>]+>/)) next
  to = substr($0, RSTART + 1, RLENGTH - 2)
  if (to !~ /^dhp\//) next
  edges[from] = edges[from] " " to
  if (!allowed(folder(from), folder(to))) offence(from ": must not include " to)
  if (to == "dhp/eigen.hpp") offence(from ": users include " to " by name")
  # default_device.hpp chooses by the compiler.
  if (to ~ /\.cuh$/ && from !~ /\.cuh$/ && from != "dhp/default_device.hpp")
    offence(from ": only nvcc can read " to)
}
END {
  for (i = 1; i <= count; i++) {
    visit(files[i], "")
    if (edges[files[i]] == "" && files[i] != "dhp/core/config.hpp") offence(files[i] ": must include dhp/core/config.hpp")
  }
  found = reaches("dhp/dhp.hpp", "^dhp/(cpu/|cuda/|device/cuda|comm/(nccl|rendezvous/handshake))")
  if (found != "") offence("dhp/dhp.hpp: needs the standard library only, but reaches " found)
  weigh("dhp/comm/launch.hpp")
  if (headers > 18 || length_of_all > 2400)
    offence("dhp/comm/launch.hpp: includes " headers " headers with " length_of_all " lines, more than 18 with 2400")
  exit bad
}'
