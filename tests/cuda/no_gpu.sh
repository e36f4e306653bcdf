#!/usr/bin/env bash
# no_gpu.sh TRAINER...: if no GPU is visible, the trainer must exit with status 1 and print one sentence that says this
# and explains how to run on the CPU.
set -u
said=$(CUDA_VISIBLE_DEVICES="" "$@" --steps 1 2>&1)
status=$?
echo "$said"
[ $status -eq 1 ] || { echo "the status is $status, not 1"; exit 1; }
sentences=$(grep -c '^error: ' <<<"$said")
[ "$sentences" -eq 1 ] || { echo "$sentences lines begin with 'error: ', not one"; exit 1; }
for words in "no NVIDIA GPU is usable" "cmake --preset release"; do
  grep -q "^error: .*$words" <<<"$said" || { echo "it does not say '$words'"; exit 1; }
done
