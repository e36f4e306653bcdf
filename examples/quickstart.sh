#!/usr/bin/env bash
# From a fresh Debian 12 to two trained networks: installs what is missing, builds, and trains a small
# ResNet on real images and a small BERT on real English, each on 2 x 2 x 2 ranks (threads) of data,
# tensor and pipeline parallelism. Under five minutes on two cores after the build.
set -u
cd "$(dirname "$0")/.." || exit 1
. .ci/parts.sh
images=/usr/share/datasets/fashion-mnist
text=/usr/share/wordnet
layout=(--data-parallel 2 --tensor-parallel 2 --pipeline-parallel 2)

part "install what is missing" bash .ci/install_packages.sh \
  g++ cmake ninja-build optional:ccache libcli11-dev nlohmann-json3-dev zlib1g-dev libutf8proc-dev \
  dataset-fashion-mnist wordnet-base
part "configure" cmake --preset release -DDHP_TESTS=OFF -DDHP_UNIT_FILES=24 -B build/quickstart
part "build" cmake --build build/quickstart -j "$(nproc)" --target train_resnet50 train_bert
mkdir -p build/quickstart/runs
part "train a ResNet-50 of width 8 on Fashion-MNIST" build/quickstart/examples/train_resnet50 \
  "${layout[@]}" --schedule 1f1b --data "$images" --width 8 --stem-stride 2 --zero-init-gamma \
  --steps 700 --global-batch 128 --micro-batch 16 --lr 0.1 --lr-decay cosine --warmup 50 \
  --weight-decay 5e-4 --metrics build/quickstart/runs/resnet.jsonl \
  --save build/quickstart/runs/resnet
part "train a BERT of 2 x 128 on the glosses of WordNet" build/quickstart/examples/train_bert \
  "${layout[@]}" --schedule zero-bubble --data "$text" --vocabulary-size 4096 --sequence-length 64 \
  --steps 900 --global-batch 128 --micro-batch 32 --lr 3e-3 --warmup 90 --dropout 0 \
  --metrics build/quickstart/runs/bert.jsonl --save build/quickstart/runs/bert
parts_done "Trained. The curves are in build/quickstart/runs/*.jsonl, the weights beside them."
