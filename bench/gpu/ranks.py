"""The same short training run in several layouts of ranks, a process for each rank, all on one GPU.

ranks.py LAUNCHER BERT RESNET OUT.json --model bert|recorded|elastic --seconds N [--dry-run]: LAUNCHER RANKS COMMAND... starts the processes
(tests/cuda/ranks.sh). --dry-run: only checks that the trainers take the options.
The losses of every layout of BERT must be those of one rank, those of both models with recorded steps those without, and those of
an elastic job of three ranks, one of which is killed, those of one rank; how fast it is means nothing, since the ranks share a GPU.
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
padded = [*bert, "--layout", "padded"]  # packed batches are not recorded
elastic = ["--preset", "mini", "--dropout", "0.1", "--steps", "10", "--deterministic", *common]
# Of three ranks the last one is killed when the metrics, $0, have a few lines.
kill_last = """[ "$RANK" = 2 ] || exec "$@"
"$@" &
until [ "$(cat "$0" 2>/dev/null | wc -l)" -ge 4 ] || ! kill -0 $!; do sleep 0.05; done
kill -KILL $!"""
recorded_layouts = ["2x1x1", "1x2x1", "1x1x2"]


def command_of(trainer, options, layout):
    axes = zip(("--data-parallel", "--tensor-parallel", "--pipeline-parallel"), layout.split("x"))
    return [trainer, *options, *[word for axis in axes for word in axis]]


def losses(prefix, trainer, options, layout, seconds):
    with tempfile.TemporaryDirectory() as folder:
        metrics = os.path.join(folder, "metrics.jsonl")
        command = [*prefix, *command_of(trainer, options, layout), "--metrics", metrics]
        command = [metrics if word == "METRICS" else word for word in command]
        # Ranks have their own, earlier time limit: killing the launcher would leave them behind.
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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("launcher")
    parser.add_argument("bert")
    parser.add_argument("resnet")
    parser.add_argument("out")
    parser.add_argument("--seconds", type=float, default=420)
    parser.add_argument("--model", choices=["bert", "recorded", "elastic"], required=True)
    parser.add_argument("--each", type=float, default=90)
    parser.add_argument("--dry-run", action="store_true")
    arguments = parser.parse_args()
    if arguments.dry_run:
        commands = [command_of(arguments.bert, bert, "2x2x2"), command_of(arguments.bert, [*elastic, "--elastic", "1:3"], "3x1x1")]
        for graphs in ("--cuda-graphs", "--no-cuda-graphs"):
            commands += [command_of(arguments.resnet, [*resnet, graphs], "2x1x1"), command_of(arguments.bert, [*padded, graphs], "2x1x1")]
        return any([check_options([*command, "--metrics", "FILE"]) for command in commands])
    end = time.monotonic() + arguments.seconds
    rows, failed = [], 0

    def compare(name, trainer, options, layout, expected, each_rank=()):
        nonlocal failed
        start, ranks = time.monotonic(), math.prod(map(int, layout.split("x")))
        row = {"layout": name, "ranks": ranks}
        try:
            if end - start < 15:
                raise TimeoutError("the time limit was reached")
            found = losses([arguments.launcher, str(ranks), *each_rank], trainer, options, layout, min(arguments.each, end - start))
            if not expected:
                raise RuntimeError("the reference run has no losses")
            row["largest_difference"] = max(abs(a - b) / abs(b) for a, b in zip(found, expected))
            row["result"] = "same" if len(found) == len(expected) and row["largest_difference"] < 1e-4 else "DIFFERENT"
        except (RuntimeError, TimeoutError, ValueError, subprocess.TimeoutExpired) as error:
            row["result"] = "failed: %s" % error
        row["seconds"] = round(time.monotonic() - start, 1)
        failed |= row["result"] != "same"
        rows.append(row)
        print("%(layout)s  %(result)s  %(seconds)s s" % row, flush=True)
        save_rows(arguments.out, rows)

    if arguments.model in ("bert", "elastic"):
        options = bert if arguments.model == "bert" else elastic
        try:
            alone = losses([], arguments.bert, options, "1x1x1", arguments.each)
        except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
            sys.exit("one rank alone: %s" % error)
        if arguments.model == "elastic":
            each_rank = ["bash", "-c", kill_last, "METRICS"]
            compare("3x1x1, then 2x1x1", arguments.bert, [*elastic, "--elastic", "1:3"], "3x1x1", alone, each_rank)
            return failed
        for layout in layouts:
            compare(layout, arguments.bert, bert, layout, alone)
        return failed
    models = [("ResNet", arguments.resnet, resnet), ("BERT", arguments.bert, padded)]
    for layout, (name, trainer, options) in itertools.product(recorded_layouts, models):
        plain = []
        try:
            left = min(arguments.each, end - time.monotonic())
            if left > 15:
                plain = losses([arguments.launcher, "2"], trainer, [*options, "--no-cuda-graphs"], layout, left)
        except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
            print("%s in %s, without recording: %s" % (name, layout, error))
        compare("%s %s, recorded" % (name, layout), trainer, [*options, "--cuda-graphs"], layout, plain)
    return failed


sys.exit(main())
