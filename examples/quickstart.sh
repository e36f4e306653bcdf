#!/usr/bin/env bash
# From a fresh Debian 12 to two trained networks, in five minutes on two idle cores: installs what is missing, builds, and
# trains a small ResNet on real images and a small BERT on real English, each on 2 x 2 x 2 ranks (threads) of data, tensor
# and pipeline parallelism. Ends with their curves as a page for the browser.
# --steps N trains for N steps only, to see that all works.
set -u
cd "$(dirname "$0")/.." || exit 1
. .ci/parts.sh
[ $# -eq 0 ] || { [ "$1" = --steps ] && [[ ${2:-} =~ ^[1-9][0-9]*$ ]] && [ $# -eq 2 ]; } ||
  { echo "usage: bash examples/quickstart.sh [--steps N]" >&2; exit 2; }
images=/usr/share/datasets/fashion-mnist
text=/usr/share/wordnet
tree=build/quickstart
runs=$tree/runs
layout=(--data-parallel 2 --tensor-parallel 2 --pipeline-parallel 2)
cat <<'END'
Five parts follow. The times are those of two idle cores of 2.8 GHz:
  30 s  install what is missing: g++, CMake, three libraries, 60,000 images (Fashion-MNIST), a dictionary (WordNet)
   5 s  configure
 150 s  compile dhp's kernels and two trainers
  50 s  train a ResNet-50 of width 8, which learns to tell shoes from shirts
  40 s  train a BERT of 2 layers, which learns to guess words that were left out of definitions
Each training has eight ranks: 2 share the samples, times 2 that share each layer, times 2 that share the layers.
END

part "install what is missing" bash .ci/install_packages.sh \
  g++ cmake ninja-build optional:ccache libcli11-dev nlohmann-json3-dev zlib1g-dev libutf8proc-dev \
  dataset-fashion-mnist wordnet-base
part "configure" cmake --preset release -DDHP_TESTS=OFF -DDHP_UNIT_FILES=24 -B $tree
part "compile" cmake --build $tree -j "$(nproc)" --target train_resnet50 train_bert
rm -rf $runs
mkdir -p $runs
part "train a ResNet-50 of width 8 on Fashion-MNIST" $tree/examples/train_resnet50 \
  "${layout[@]}" --schedule 1f1b --data "$images" --width 8 --stem-stride 2 --zero-init-gamma \
  --steps "${2:-700}" --global-batch 128 --micro-batch 16 --lr 0.1 --lr-decay cosine --warmup 50 \
  --weight-decay 5e-4 --metrics $runs/resnet.jsonl --save $runs/resnet
part "train a BERT of 2 x 128 on the glosses of WordNet" $tree/examples/train_bert \
  "${layout[@]}" --schedule zero-bubble --data "$text" --vocabulary-size 4096 --sequence-length 64 \
  --steps "${2:-900}" --global-batch 128 --micro-batch 32 --lr 3e-3 --warmup 90 --dropout 0 \
  --metrics $runs/bert.jsonl --save $runs/bert
awk -f examples/curves.awk $runs/resnet.jsonl $runs/bert.jsonl >$runs/curves.html || exit 1
parts_done "Trained. The weights are in $runs; the curves, for a browser: file://$PWD/$runs/curves.html"
