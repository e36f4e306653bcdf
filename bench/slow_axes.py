#!/usr/bin/env python3
"""Measures how much communication of the context axis and of sequence parallelism is hidden on a slow link.

slow_axes.py TRAIN_GPT TEXT [--megabits N] [--steps N] [--ways NAME,NAME] [--json FILE]

Trains a decoder on two hosts, which are network namespaces of this machine (needs iproute2, and root or user
namespaces); their links carry N megabits a second. The ranks are processes over Gloo. Prints for each way a step's time
on the link, the part of it that could overlap with computation, the time that a step waits, and the hidden share of the
overlappable part."""
import argparse
import json
import pathlib
import statistics
import tempfile

import processes  # noqa: F401
import network
import overlap

HOSTS = overlap.HOSTS = 2
MODEL = ["--vocabulary-size", "512", "--global-batch", "1", "--micro-batch", "1", "--held-out", "0",
         "--dropout", "0"]
LONG = ["--preset", "tiny", "--sequence-length", "8192"]
# Options, the source file whose calls count, and the share of their link time that can overlap with computation.
WAYS = {
    # Keys and values overlap in both passes, and so does the first message of their gradients. The second one, which
    # returns the gradients to their rank, does not.
    "ring": ([*LONG, "--context-parallel", "2"], "ring_attention.hpp", 6 / 8),
    # Attention needs the exchange before it, and the next product needs the exchange after it.
    "heads": ([*LONG, "--context-parallel", "2", "--context-attention", "heads"], "context.hpp", 0),
    # 4 of a block's 10 exchanges overlap: backward gathers x during the product of dx, and scatters dx during dw's.
    "sequence parallelism": (["--preset", "small", "--sequence-length", "512", "--tensor-parallel", "2",
                              "--sequence-parallel"], "row_shares.hpp", 2 / 5),
}
# The share of a call's bytes that a rank sends.
SENT = {"shift": 1, "all_gather": HOSTS - 1, "reduce_scatter": (HOSTS - 1) / HOSTS, "all_to_all": (HOSTS - 1) / HOSTS}


def traced(program, text, options, steps, hosts, folder):
    """Returns the traced steps of all ranks."""
    path = folder / "trace.json"
    hosts.run([program, "--data", text, *MODEL, *options, "--steps", str(steps), "--trace", str(path)], 500)
    return [step for of_rank in overlap.spans(path).values() for step in overlap.steps_of(of_rank)]


def on_link(step, place, rate):
    """Returns the seconds on the link of the calls at this place."""
    return sum(SENT[name] * size / rate for kind, name, _, _, size, at in step
               if kind == "communication" and at.startswith(place) and name in SENT)


def in_the_ring(step, place):
    """Returns the seconds that a step waits for messages that could overlap: a layer has one forward and three backward
    waits, and the last of these, which returns gradients to their owner, does not count."""
    waits = [end - start for kind, _, start, end, _, at in step if kind == "exposed" and at.startswith(place)]
    return sum(waits) - sum(waits[len(waits) // 4 + 2::3])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("train_gpt")
    parser.add_argument("text")
    parser.add_argument("--megabits", type=int, default=400)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--json")
    asked = parser.parse_args()
    network.enter()
    rate = asked.megabits * 1e6 / 8
    results = {}
    with tempfile.TemporaryDirectory() as temporary, network.Network(count=HOSTS) as hosts:
        print(f"{HOSTS} hosts, {asked.megabits} Mbit/s\n{'':20} {'s a step':>9} {'on the link':>12} {'hideable':>9} "
              f"{'waited for':>11} {'hidden':>7}")
        for name in asked.ways.split(","):
            options, place, share = WAYS[name]
            hosts.limit(asked.megabits)
            steps = traced(asked.train_gpt, asked.text, options, asked.steps, hosts, pathlib.Path(temporary))
            whole = statistics.median(span[3] - span[2] for step in steps for span in step if span[1].startswith("step "))
            link = statistics.median(on_link(step, place, rate) for step in steps)
            waits = statistics.median(overlap.exposed(step, place) for step in steps)
            hideable = share * link
            hidden = None
            if name == "ring":
                hidden = 1 - statistics.median(in_the_ring(step, place) for step in steps) / hideable
            elif hideable:
                hidden = (link - waits) / hideable
            results[name] = {"step": whole, "link": link, "hideable": hideable, "waits": waits, "hidden": hidden}
            print(f"{name:20} {whole:9.3f} {link:12.3f} {hideable:9.3f} {waits:11.3f} "
                  + ("      -" if hidden is None else f"{100 * hidden:5.0f} %"), flush=True)
    if asked.json:
        pathlib.Path(asked.json).write_text(json.dumps({"megabits": asked.megabits, "ways": results}))


if __name__ == "__main__":
    main()
