#!/usr/bin/env python3
"""Measures step times of BERT-tiny on two hosts with a slow network, for each case of older_ideas.py.

slow_link.py TRAIN_BERT [--megabits N] [--steps N] [--json FILE]

The hosts are network namespaces of this machine (needs iproute2, and root or user namespaces); their links carry N
megabits a second. The ranks are processes over Gloo. Times are means, beside fp32 in buckets in the same run."""
import argparse
import json
import pathlib
import statistics
import tempfile

import processes  # noqa: F401
import network
from programs import recorded
from older_ideas import CASES, TASKS

HOSTS = 2


def seconds_per_step(program, case, steps, hosts, folder):
    metrics = folder / "metrics.jsonl"
    _, options = TASKS["BERT-tiny, WordNet"]
    hosts.run([program, *options, "--samples", "4000", "--data-parallel", str(HOSTS), "--steps", str(steps),
               "--metrics", str(metrics), "--overwrite", *case.options], 500)
    samples = [line["samples_per_s"] for line in recorded(metrics)[2:]]  # the first steps still connect
    # The mean, since local SGD exchanges only in some steps.
    return 64 * statistics.mean(1 / rate for rate in samples)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("train_bert")
    parser.add_argument("--megabits", type=int, default=50)
    parser.add_argument("--steps", type=int, default=18)
    parser.add_argument("--json")
    asked = parser.parse_args()
    network.enter()
    results = {}
    with tempfile.TemporaryDirectory() as temporary, network.Network(count=HOSTS) as hosts:
        hosts.limit(asked.megabits)
        print(f"BERT-tiny, {HOSTS} hosts, {asked.megabits} Mbit/s\n{'':20} {'s a step':>9} {'of fp32':>8}")
        for case in CASES:
            results[case.name] = seconds_per_step(asked.train_bert, case, asked.steps, hosts, pathlib.Path(temporary))
            print(f"{case.name:20} {results[case.name]:9.3f} {results[case.name] / results['fp32']:8.2f}", flush=True)
    if asked.json:
        pathlib.Path(asked.json).write_text(json.dumps({"megabits": asked.megabits, "seconds_per_step": results}))


if __name__ == "__main__":
    main()
