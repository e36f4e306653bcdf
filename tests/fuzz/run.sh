#!/usr/bin/env bash
# run.sh FOLDER [RUNS]: runs libFuzzer on the parsers of this folder, with AddressSanitizer and
# UndefinedBehaviorSanitizer. FOLDER keeps the programs and their corpora. Needs clang++ (Debian: clang).
set -eu
source=$(cd "$(dirname "$0")/../.." && pwd)
folder=$1 runs=${2:-1000000}
clang=$(command -v clang++ || command -v clang++-14) || { echo "skipped: there is no clang++" && exit 77; }
for name in safetensors checkpoint_index; do
  mkdir -p "$folder/$name"
  "$clang" -std=c++20 -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined \
    -isystem "$source/tests/headers/clang14" -I "$source/include" "$source/tests/fuzz/$name.cpp" -o "$folder/fuzz_$name"
  cp "$source/tests/fuzz/seeds/$name".* "$folder/$name"
  "$folder/fuzz_$name" -runs="$runs" -max_len=1024 -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="$folder/" "$folder/$name" 2> "$folder/$name.log" || { tail -40 "$folder/$name.log"; exit 1; }
  grep -E "cov: |stat::number_of_executed_units" "$folder/$name.log" | tail -2
done
