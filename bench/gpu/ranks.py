"""Runs the same short training in several layouts of ranks, with one process per rank, all on one GPU.

ranks.py LAUNCHER BERT RESNET OUT.json --model bert|recorded|elastic|features --seconds N [--dry-run]: LAUNCHER RANKS
COMMAND... starts the processes (tests/cuda/ranks.sh). --dry-run: only checks that the trainers take the options.
The losses of every layout of BERT, of every feature, and of an elastic job of three ranks that loses one must equal
those of one rank. Recorded steps of both models must have the losses of unrecorded ones. Compressed or late gradients
need only give finite losses. The speed means nothing, since the ranks share a GPU.
"""
import argparse
import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
import time

from rows import save_rows
from trainer import check_options

layouts = ["2x1x1", "1x2x1", "1x1x2", "2x2x1", "2x1x2", "1x2x2", "4x1x1", "2x2x2"]
common = ["--precision", "fp32", "--global-batch", "32", "--micro-batch", "4", "--evaluate-samples", "1", "--comm-timeout", "60"]
bert = ["--preset", "mini", "--dropout", "0.1", "--steps", "3", *common]
resnet = ["--depth", "14", "--width", "8", "--image-size", "32", "--samples", "256", "--steps", "5", *common]
gpt = ["--steps", "3", *common]
padded = [*bert, "--layout", "padded"]  # packed batches are not recorded
elastic = ["--preset", "mini", "--dropout", "0.1", "--steps", "10", "--deterministic", *common]
# Kills the last of three ranks when the metrics file, $0, has a few lines.
kill_last = """[ "$RANK" = 2 ] || exec "$@"
"$@" &
until [ "$(cat "$0" 2>/dev/null | wc -l)" -ge 4 ] || ! kill -0 $!; do sleep 0.05; done
kill -KILL $!"""
recorded_layouts = ["2x1x1", "1x2x1", "1x1x2"]


# Features of ranks: name, trainer, its options, layout, and further options of the reference run of one rank.
pairs = ["--tensor-groups", "2", "--deterministic"]
features = [
    *[("ZeRO %d" % stage, "bert", ["--zero", str(stage)], "2x1x1", []) for stage in (1, 2, 3)],
    ("ZeRO 1, offloaded", "bert", ["--zero", "1", "--offload", "optimizer"], "2x1x1", []),
    ("shares of rows", "bert", ["--sequence-parallel"], "1x2x1", []),
    ("shares of tokens", "bert", ["--layout", "padded", "--context-parallel", "2", "--context-attention", "heads"], "1x1x1",
     ["--layout", "padded"]),
    *[(schedule, "bert", ["--schedule", schedule], "1x1x2", []) for schedule in ("zero-bubble", "zero-bubble-v", "dual-pipe-v")],
    ("interleaved", "bert", ["--schedule", "interleaved", "--pipeline-chunks", "2"], "1x1x2", []),
    *[("exact sums", "bert", pairs, layout, pairs) for layout in ("2x1x1", "1x2x1", "1x1x2")],
    ("recomputed", "bert", ["--recompute"], "1x1x1", []),
    ("verified", "bert", ["--deterministic", "--verify-every", "2"], "2x1x1", ["--deterministic"]),
    *[("a decoder", "gpt", [], layout, []) for layout in ("2x1x1", "1x2x1", "1x1x2")],
    ("channels", "resnet", [], "1x2x1", []), ("stages", "resnet", [], "1x1x2", []),
    *[(reducer, "bert", ["--reducer", reducer], "2x1x1", None)
      for reducer in ("16-bit", "top-k", "powersgd", "one-bit", "delayed", "local")]]


def ranks_of(layout, options):
    context = int(options[options.index("--context-parallel") + 1]) if "--context-parallel" in options else 1
    return context * math.prod(map(int, layout.split("x")))


def command_of(trainer, options, layout):
    axes = zip(("--data-parallel", "--tensor-parallel", "--pipeline-parallel"), layout.split("x"))
    return [trainer, *options, *[word for axis in axes for word in axis]]


def losses(prefix, trainer, options, layout, seconds):
    with tempfile.TemporaryDirectory() as folder:
        metrics = os.path.join(folder, "metrics.jsonl")
        command = [*prefix, *command_of(trainer, options, layout), "--metrics", metrics]
        command = [metrics if word == "METRICS" else word for word in command]
        # The ranks get an earlier time limit of their own, since killing the launcher would leave them behind.
        limit = dict(os.environ, DHP_RANKS_SECONDS=str(max(2, int(seconds) - 10)))
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds, env=limit)
        if done.returncode != 0:
            raise RuntimeError((done.stdout.strip().splitlines() or ["status %d" % done.returncode])[-1])
        with open(metrics) as file:
            lines = [json.loads(line) for line in file]
    if "--cuda-graphs" in options and not any(line.get("replayed") for line in lines):
        raise RuntimeError("no step was recorded")
    if "--elastic" in options and "generation 2: 2x1x1" not in done.stdout:
        raise RuntimeError("the ranks that were left did not go on")
    return [line["loss"] for line in lines if "loss" in line]


def judged(found, expected):
    """Returns a verdict on losses and their distance from another run's. expected None: they need only be finite."""
    if expected is None:
        return "numbers" if found and all(map(math.isfinite, found)) else "NOT NUMBERS", None
    if not expected:
        return "failed: the reference run has no losses", None
    largest = max(abs(a - b) / abs(b) for a, b in zip(found, expected))
    return "same" if len(found) == len(expected) and largest < 1e-4 else "DIFFERENT", largest


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("launcher")
    parser.add_argument("bert")
    parser.add_argument("resnet")
    parser.add_argument("out")
    parser.add_argument("--seconds", type=float, default=420)
    parser.add_argument("--model", choices=["bert", "recorded", "elastic", "features"], required=True)
    parser.add_argument("--each", type=float, default=90)
    parser.add_argument("--dry-run", action="store_true")
    arguments = parser.parse_args()
    trainers = {"bert": (arguments.bert, bert), "resnet": (arguments.resnet, resnet),
                "gpt": (os.path.join(os.path.dirname(arguments.bert), "train_gpt"), gpt)}
    if arguments.dry_run:
        commands = [command_of(arguments.bert, bert, "2x2x2"), command_of(arguments.bert, [*elastic, "--elastic", "1:3"], "3x1x1")]
        for graphs in ("--cuda-graphs", "--no-cuda-graphs"):
            commands += [command_of(arguments.resnet, [*resnet, graphs], "2x1x1"), command_of(arguments.bert, [*padded, graphs], "2x1x1")]
        commands += [command_of(trainers[of][0], trainers[of][1] + more, layout) for _, of, more, layout, _ in features]
        return any([check_options([*command, "--metrics", "FILE"]) for command in commands])
    end = time.monotonic() + arguments.seconds
    rows = []

    def reference(prefix, trainer, options, layout="1x1x1"):
        left = end - time.monotonic()
        try:
            return losses(prefix, trainer, options, layout, min(arguments.each, left)) if left > 15 else []
        except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
            print("the reference, %s %s: %s" % (os.path.basename(trainer), " ".join(options), error), flush=True)
            return []

    def compare(name, trainer, options, layout, expected, each_rank=()):
        start, ranks = time.monotonic(), ranks_of(layout, options)
        row = {"layout": name, "ranks": ranks}
        try:
            if end - start < 15:
                raise TimeoutError("the time limit was reached")
            found = losses([arguments.launcher, str(ranks), *each_rank], trainer, options, layout, min(arguments.each, end - start))
            row["result"], row["largest_difference"] = judged(found, expected)
        except (OSError, RuntimeError, ValueError, subprocess.TimeoutExpired) as error:
            row["result"] = "failed: %s" % error
        row["seconds"] = round(time.monotonic() - start, 1)
        rows.append(row)
        print("%(layout)s  %(result)s  %(seconds)s s" % row, flush=True)
        save_rows(arguments.out, rows)

    if arguments.model == "bert":
        alone = reference([], arguments.bert, bert)
        for layout in layouts:
            compare(layout, arguments.bert, bert, layout, alone)
    elif arguments.model == "elastic":
        each_rank = ["bash", "-c", kill_last, "METRICS"]
        compare("3x1x1, then 2x1x1", arguments.bert, [*elastic, "--elastic", "1:3"], "3x1x1",
                reference([], arguments.bert, elastic), each_rank)
    elif arguments.model == "recorded":
        for layout, of in itertools.product(recorded_layouts, ("resnet", "bert")):
            trainer, options = trainers[of][0], padded if of == "bert" else resnet
            plain = reference([arguments.launcher, "2"], trainer, [*options, "--no-cuda-graphs"], layout)
            compare("%s %s, recorded" % (of, layout), trainer, [*options, "--cuda-graphs"], layout, plain)
    else:
        alone = {}  # one run of a rank, shared by all features with the same reference
        for name, of, more, layout, besides in features:
            trainer, options = trainers[of]
            if besides is not None and (of, *besides) not in alone:
                alone[of, *besides] = reference([], trainer, options + besides)
            compare("%s, %s %s" % (name, of, layout), trainer, options + more, layout, None if besides is None else alone[of, *besides])
    return any(row["result"] not in ("same", "numbers") for row in rows)


sys.exit(main())
