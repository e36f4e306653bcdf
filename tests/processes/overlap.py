#!/usr/bin/env python3
"""overlap.py OVERLAP [TRAIN_RESNET50 TRAIN_BERT]: four replicas on four hosts, whose links carry 100 Mbit/s, 5 ms late.
A model whose layers compute by sleeping is trained with gradients summed after the backward pass, and in buckets while
it goes on. At least 60 % of the communication that can be hidden must be: of what is exposed without overlap, less what
an ideal link leaves exposed, which carries each bucket from the moment that it is ready. The trainers' exposed
communication is printed where they are given. --traces FOLDER keeps the traces, plain.json and bucketed.json."""

import argparse
import json
import pathlib
import re
import signal
import statistics
import sys
import tempfile

import network

HOSTS = 4
MEGABITS = 100
DELAY_S = 0.005
STEPS = 4
WANTED = 0.6


def spans(path):
    """The spans of each rank, sorted by start: (category, name, start, end, bytes, place), with times in seconds."""
    found = {rank: [] for rank in range(HOSTS)}
    for event in json.loads(path.read_text())["traceEvents"]:
        if event["ph"] == "X":
            arguments = event.get("args", {})
            found[event["pid"]].append((event["cat"], event["name"], event["ts"] / 1e6,
                                        (event["ts"] + event["dur"]) / 1e6, arguments.get("bytes", 0),
                                        arguments.get("at", "")))
    return {rank: sorted(spans, key=lambda span: span[2]) for rank, spans in found.items()}


def steps_of(spans_of_rank):
    """The spans of each step except the first, which also opens connections."""
    steps = [span for span in spans_of_rank if re.fullmatch("step [0-9]+", span[1])]
    return [[span for span in spans_of_rank if step[2] <= span[2] < step[3]] for step in steps[1:]]


def exposed(step, place=""):
    """Seconds that a step waits for calls whose place begins with `place`."""
    return sum(end - start for kind, _, start, end, _, at in step if kind == "exposed" and at.startswith(place))


def ideal(step, rate):
    """Seconds that a step would wait if only the rate of the link delayed its buckets."""
    backward = next(span for span in step if span[1].startswith("backward"))
    ready = sorted(end for _, name, start, end, _, _ in step if name.startswith("layer ") and start >= backward[2])
    buckets = [size for kind, name, _, _, size, at in step
               if kind == "communication" and name == "all_reduce" and at.startswith("reducer.hpp")]
    if len(buckets) != len(ready) or len(buckets) < 8 or max(buckets) > 2 * min(buckets):
        raise AssertionError(f"these are not 8 or more similar buckets, one for each layer: {buckets}, {len(ready)}")
    free = 0.0
    for bucket, at in zip(buckets, ready):
        free = max(free, at) + 2 * (HOSTS - 1) / HOSTS * bucket / rate
    others = exposed(step) - exposed(step, "reducer.hpp")
    return others + max(0.0, free - backward[3])


def sleepers(program, hosts, root):
    """The share of the hideable communication that was hidden."""
    rate = MEGABITS * 1e6 / 8
    seconds = {"plain": [], "bucketed": [], "ideal": []}
    for _ in range(2):
        for reducer in ("plain", "bucketed"):
            path = root / f"{reducer}.json"
            hosts.run([program, reducer, str(path), str(STEPS)], 240)
            for of_rank in spans(path).values():
                for step in steps_of(of_rank):
                    seconds[reducer].append(exposed(step))
                    if reducer == "bucketed":
                        seconds["ideal"].append(ideal(step, rate))
    plain, bucketed, least = (statistics.median(seconds[kind]) for kind in ("plain", "bucketed", "ideal"))
    hidden = (plain - bucketed) / (plain - least)
    print(f"sleeping layers: a step waits {plain:.3f} s with sums after the backward pass, {bucketed:.3f} s with "
          f"buckets, {least:.3f} s with an ideal link: {100 * hidden:.0f} % of what can be hidden is", flush=True)
    return hidden


def trainers(programs, hosts, root):
    """Prints the exposed communication of the real models, without a threshold."""
    common = ["--held-out", "0.1", "--evaluate-samples", "4", "--steps", "4", "--bucket-mb", "0.5", "--data-parallel",
              str(HOSTS)]
    lines = {
        "resnet": ["--depth", "14", "--width", "8", "--image-size", "32", "--classes", "10", "--samples", "64",
                   "--global-batch", "32", "--micro-batch", "8"],
        "bert": ["--preset", "tiny", "--sequence-length", "64", "--vocabulary-size", "4096", "--samples", "256",
                 "--global-batch", "32", "--micro-batch", "4"],
    }
    for name, program in programs.items():
        for reducer in ("plain", "bucketed"):
            path = root / f"{name} {reducer}.json"
            hosts.run([program, *lines[name], *common, "--reducer", reducer, "--trace", str(path)], 240)
            steps = [step for of_rank in spans(path).values() for step in steps_of(of_rank)]
            whole = [next(end - start for _, name, start, end, _, _ in step if name.startswith("step "))
                     for step in steps]
            waits = statistics.median(exposed(step) for step in steps)
            step_s = statistics.median(whole)
            print(f"{name}, {reducer}: a step of {step_s:.3f} s waits {waits:.3f} s: {100 * waits / step_s:.0f} %",
                  flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("overlap")
    parser.add_argument("trainers", nargs="*")
    parser.add_argument("--traces", type=pathlib.Path)
    asked = parser.parse_args()
    network.enter()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    with tempfile.TemporaryDirectory() as temporary, network.Network(DELAY_S) as hosts:
        root = asked.traces or pathlib.Path(temporary)
        hosts.limit(MEGABITS)
        hidden = sleepers(asked.overlap, hosts, root)
        trainers(dict(zip(("resnet", "bert"), asked.trainers)), hosts, root)
    return "" if hidden >= WANTED else f"less than {100 * WANTED:.0f} % of the hideable communication is hidden"


if __name__ == "__main__":
    sys.exit(main() or 0)
