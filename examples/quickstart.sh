#!/usr/bin/env bash
# Goes from a fresh Debian 12 or 13 to two trained networks: installs missing packages, builds, and trains a small
# ResNet on real images and a small BERT on real English, each on 2 x 2 x 2 ranks (threads) of data, tensor and pipeline
# parallelism. Ends with a page of their loss curves. --steps N trains for only N steps, as a quick test.
set -u
cd "$(dirname "$0")/.." || exit 1
. .ci/parts.sh
if [ $# -ne 0 ] && { [ $# -ne 2 ] || [ "$1" != --steps ] || [[ ! $2 =~ ^[1-9][0-9]*$ ]]; }; then
  echo "usage: bash examples/quickstart.sh [--steps N]" >&2
  exit 2
fi
images=/usr/share/datasets/fashion-mnist
text=/usr/share/wordnet
programs=build/quickstart/examples runs=build/quickstart/runs
few=(${2:+--evaluate-samples 512})
resnet_steps=${2:-350} bert_steps=${2:-900}
layout=(--data-parallel 2 --tensor-parallel 2 --pipeline-parallel 2)
cat <<'END'
Five parts follow; on two idle cores they take about this long:
   30 s  install what is missing: g++, CMake, small libraries, 60,000 images (Fashion-MNIST), a dictionary (WordNet)
    5 s  configure
  120 s  compile the CPU's kernels and two trainers
   50 s  train a ResNet-50 of width 8: it learns to tell shoes from shirts
   65 s  train a BERT of 2 layers: it learns to guess words that are hidden in definitions
A training has 8 ranks: 2 share the samples, times 2 that share each layer, times 2 that share the layers.
END

part "install what is missing" bash .ci/install_packages.sh \
  g++ cmake ninja-build optional:ccache libcli11-dev nlohmann-json3-dev zlib1g-dev libutf8proc-dev \
  dataset-fashion-mnist wordnet-base
part "configure" cmake --preset release -DDHP_TESTS=OFF -DDHP_UNIT_FILES=24 -B build/quickstart
part "compile" cmake --build build/quickstart -j "$(nproc)" --target train_resnet50 train_bert
[ ! -e $runs ] || mv $runs "$runs.$(date +%s)"  # keeps an earlier quickstart's runs
mkdir -p $runs
part "train a ResNet-50 of width 8 on Fashion-MNIST" $programs/train_resnet50 \
  "${layout[@]}" --schedule 1f1b --data "$images" --width 8 --stem-stride 2 --zero-init-gamma \
  --steps "$resnet_steps" --global-batch 128 --micro-batch 32 --lr 0.2 --lr-decay cosine --warmup 30 \
  --weight-decay 5e-4 "${few[@]}" --metrics $runs/resnet.jsonl --save $runs/resnet
part "train a BERT of 2 x 128 on the glosses of WordNet" $programs/train_bert \
  "${layout[@]}" --schedule zero-bubble --data "$text" --vocabulary-size 4096 --sequence-length 64 \
  --steps "$bert_steps" --global-batch 128 --micro-batch 32 --lr 3e-3 --warmup 90 --dropout 0 "${few[@]}" \
  --metrics $runs/bert.jsonl --save $runs/bert
awk -f examples/curves.awk $runs/resnet.jsonl $runs/bert.jsonl >$runs/curves.html || exit 1
parts_done "Trained. The weights are in $runs.
The curves, for a browser: file://$PWD/$runs/curves.html

To try next:
  1. Let the ResNet go on in another layout, on 4 replicas:
     $programs/train_resnet50 --config $runs/resnet/step-$(printf %08d "$resnet_steps")/options.toml --load $runs/resnet \\
       --data-parallel 4 --tensor-parallel 1 --pipeline-parallel 1 --steps $((resnet_steps + 20))
  2. Train a BERT on texts of your own, here on licenses, in two stages:
     $programs/train_bert --data /usr/share/common-licenses --pipeline-parallel 2 --steps 50
  3. See all three axes in one program of a screen, which says what each rank holds and sends:
     cmake --build build/quickstart --target lesson_10_all_three && $programs/lesson_10_all_three"
