#!/usr/bin/env bash
# plan_test.sh ROOT PROGRAMS: compares the ledger of a step (bench/gpu/plan.py) with known FLOP and bytes of the models.
# PROGRAMS: folder of the dry trainers.
set -u
root=$1 programs=$2
[ -x "$programs/dry_bert" ] && [ -x "$programs/dry_resnet50" ] || { echo "skipped: the dry trainers are not built"; exit 77; }
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$root/bench/gpu "${PYTHON:-python3}" - "$programs" <<'PYTHON'
import json
import subprocess
import sys

import work

programs, failed = sys.argv[1], False


def step(program, *options):
    command = [programs + "/" + program, "--data", "synthetic-resident", "--steps", "2", *options]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return json.loads(said)


def total(step, key, name=""):
    return sum(row[key] for row in step["launches"] if row["name"].startswith(name))


def near(what, got, wanted, share=0.005):
    global failed
    if abs(got - wanted) > share * wanted:
        failed = True
        print("%s: expected %.6g, got %.6g" % (what, wanted, got))


images = step("dry_resnet50", "--held-out", "0", "--global-batch", "8", "--micro-batch", "8", "--optimizer", "sgd",
              "--precision", "fp16")
near("FLOP of an image", total(images, "flop") / 8, work.resnet_flop)
near("convolutions forward", total(images, "launches", "cuDNN convolution") -
     total(images, "launches", "cuDNN convolution's"), 53)
# The forward pass writes the result of each convolution at least once, and the backward pass reads it.
near("bytes of an image, those of plan P1 and of no plan between them", total(images, "bytes") / 8e6, 420, 0.25)
# fp32 gradient, momentum and master weights, both read and written, and fp16 weights written: 22 bytes.
near("bytes of an update of 25.6 million weights", total(images, "bytes", "UpdateWeights"), 22 * 25.56e6)

# LAMB in fp32: its norms read gradient, both moments and weights; its update reads them again and writes all but the
# gradient.
lamb = step("dry_resnet50", "--held-out", "0", "--global-batch", "8", "--micro-batch", "8", "--optimizer", "lamb",
            "--precision", "fp32")
near("bytes of LAMB's norms", total(lamb, "bytes", "LambSquares"), 16 * 25.56e6)
near("bytes of LAMB's update", total(lamb, "bytes", "UpdateWeights"), 28 * 25.56e6)

size = ["--evaluate-samples", "1", "--preset", "base", "--sequence-length", "128", "--vocabulary-size", "8192",
        "--global-batch", "16", "--micro-batch", "16", "--precision", "bf16", "--layout", "padded"]
plain, dropping = (step("dry_bert", *size, "--dropout", share) for share in ("0", "0.1"))
wanted = work.bert_flop(12, 768, 128, 8192, 19) * 16
near("FLOP of BERT-base", total(plain, "flop"), wanted, 0.02)  # attention's gradient computes its scores again
# Dropout makes the attention dhp's own: two products forward, as cuDNN's; seven for the gradients instead of five.
backward = total(plain, "flop", "cuDNN attention's")
near("FLOP of BERT-base with dropout", total(dropping, "flop"), total(plain, "flop") + 0.4 * backward, 1e-9)
near("FLOP of own attention", total(dropping, "flop", "FlashAttentionForward"), total(plain, "flop", "cuDNN attention") - backward, 1e-9)
near("FLOP of its gradients", total(dropping, "flop", "FlashAttentionGradient"), 1.4 * backward, 1e-9)
if total(dropping, "bytes") <= total(plain, "bytes"):
    failed = True
    print("dropout moves no bytes")
sys.exit(failed)
PYTHON
