"""An elastic job with the options that people combine with it, beside the same run without disturbance.

elastic_acceptance.py TRAIN_BERT [--rounds N] [--steps N] [--losses N] [--departures N] [--preset NAME] [--json FILE]:
BERT-tiny on four processes over Gloo with --deterministic, ZeRO (stage 1, then 3) with --shard-redundancy 1, and a
checkpoint in the background each 20 steps. Each round has a steady run and a disturbed one, both with the same options,
--elastic too. The disturbed run loses a rank again and again, never the first, in turns by SIGTERM (a spot notice) and
by SIGKILL. When the others have continued, a newcomer takes its place.

Then come --departures planned departures, with newcomers between them; none may repeat a micro-batch. Each run must
have the steady run's numbers in each step, to the bit; else an assertion fails (exit status 1).
"""
import argparse
import json
import os
import pathlib
import random
import signal
import statistics
import sys
import tempfile
import time

import results_file
from processes import ranks
import elastic  # the test, not bench/elastic.py
from elastic_parts import PARTS, Steps, next_generation, parts_of
from generations import told

RANKS, GLOBAL_BATCH, MICRO_BATCH = 4, 16, 2


def options(asked, stage):
    return ["--preset", asked.preset, "--vocabulary-size", "512", "--sequence-length", "32", "--samples", "256", "--global-batch",
            str(GLOBAL_BATCH), "--micro-batch", str(MICRO_BATCH), "--held-out", "0", "--steps", str(asked.steps), "--deterministic",
            "--zero", str(stage), "--shard-redundancy", "1", "--save-every", "20", "--keep", "2", "--elastic", "1:4"]


def run(asked, folder, stage, events):
    """Runs one job. events: the signals that ranks get, in this order, evenly spread over the steps."""
    folder.mkdir()
    metrics = folder / "metrics"
    command = [asked.program, *options(asked, stage), "--save", str(folder / "save"), "--metrics", str(metrics)]
    lost, newcomers, number = [], [], 1
    begin = time.monotonic()
    with ranks.Job(RANKS, command) as job:
        steps = Steps(metrics)
        steps.wait_for(1, 120)
        first = time.monotonic()
        alive = {rank: job.processes[rank] for rank in range(1, RANKS)}
        for count, event in enumerate(events):
            steps.wait_for((count + 1) * asked.steps // (len(events) + 1), 300)
            time.sleep(random.uniform(0, 0.1))
            rank = random.choice(sorted(alive))
            sent = time.monotonic()
            alive[rank].send_signal(event)
            found, came = next_generation(job, number)
            steps.wait_for(found.after + 1, 60)
            end = time.monotonic()
            lost.append(dict(signal=event.name, total=end - sent, step=end - came, again=int(found.repeats > 0),
                             megabytes=found.megabytes, **parts_of(found, sent, came)))
            alive[rank].wait(60)
            assert alive[rank].returncode == (75 if event == signal.SIGTERM else -event), job.output(0)
            alive[rank] = job.add(rank)
            joined, came = next_generation(job, found.number)
            number = joined.number
            newcomers.append(dict(again=int(joined.repeats > 0), megabytes=joined.megabytes, state=joined.state))
        steps.wait_for(asked.steps, 600)
        last = time.monotonic()
        living = [at for at, process in enumerate(job.processes) if process.poll() is None or process.returncode == 0]
        gone = [at for at in range(len(job.processes)) if at not in living]
        ends = job.wait(last - begin + 120, gone)
        wall = time.monotonic() - begin
        said = job.output(0)
        assert all(end.status == 0 for end in ends), [end.output for end in ends]
    generations = told(said)
    assert len(generations) == 2 * len(events) and len(gone) == len(events), said
    assert "warning" not in said, said
    numbers = elastic.curve(metrics, asked.steps)
    return dict(wall=wall, training=last - first, lost=lost, newcomers=newcomers, losses_of_state=sum(each.loses for each in generations),
                saved=(folder / "save" / "latest").read_text().strip(), numbers=numbers, final=json.loads(numbers[-1])[1])


def middle(rows, key):
    return statistics.median(row[key] for row in rows)


def report(stage, pairs, steps):
    """Prints the table of one ZeRO stage: medians over the rounds, counts over all rounds."""
    steady, disturbed = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    lost = [row for each in disturbed for row in each["lost"]]
    newcomers = [row for each in disturbed for row in each["newcomers"]]
    again = sum(row["again"] for row in lost + newcomers)
    micro_batches = GLOBAL_BATCH // MICRO_BATCH
    step_s = middle(steady, "training") / (steps - 1)
    stood = []  # a rank finishes its step after SIGTERM, so its `noticed` costs no standstill
    for each in disturbed:
        killed = [row for row in each["lost"] if row["signal"] == "SIGKILL"]
        both = each["lost"] + each["newcomers"]
        stood.append(sum(row["noticed"] for row in killed) + sum(row["state"] for row in both) +
                     sum(row["again"] for row in both) * step_s)
    print(f"ZeRO {stage}, {len(pairs)} rounds of {steps} steps")
    print("  | | steady | elastic |\n  |---|---|---|")

    def row(name, a, b):
        print(f"  | {name} | {a} | {b} |")
    row("SIGTERM, SIGKILL, newcomers", "0, 0, 0", ", ".join(str(len(found)) for found in (
        [each for each in lost if each["signal"] == "SIGTERM"], [each for each in lost if each["signal"] == "SIGKILL"], newcomers)))
    row("generations of a round", 1, 1 + 2 * len(disturbed[0]["lost"]))
    for name, key in (("wall time, from the start of the processes to their end, s", "wall"),
                      ("from the end of the first step to that of the last, s", "training")):
        ratio = statistics.median(b[key] / a[key] for a, b in pairs)
        row(name, "%.2f" % middle(steady, key), "%.2f (%.3f x)" % (middle(disturbed, key), ratio))
    row("time without progress (until a kill is noticed; until the new generation has its state; steps done again), share of the "
        "steady wall time", 0, "%.1f %%" % (
        100 * statistics.median(s / a["wall"] for s, (a, _) in zip(stood, pairs))))
    row("steps that were interrupted and done again", 0, again)
    row("micro-batches done again, at most", 0, again * micro_batches)
    row("steps lost (done after the newest state that somebody had)", 0, 0 if not any(
        each["losses_of_state"] for each in disturbed) else "some")
    row("state that went from one rank to another, MB", 0, "%.1f" % sum(each["megabytes"] for each in lost + newcomers))
    row("final loss", steady[0]["final"], disturbed[0]["final"])
    row("newest checkpoint", steady[0]["saved"], disturbed[0]["saved"])
    print("  the curves are the same bytes in every round")
    for name in ("SIGTERM", "SIGKILL"):
        rows = [each for each in lost if each["signal"] == name]
        print("  %s to the end of the next step %.3f s: %s; done again: %d of %d; state %.2f MB" % (
            name, middle(rows, "total"), ", ".join("%s %.3f" % (part, middle(rows, part)) for part in PARTS),
            sum(each["again"] for each in rows), len(rows), middle(rows, "megabytes")))
    print("  a newcomer: %.3f s without a step; state %.2f MB" % (middle(newcomers, "state"), middle(newcomers, "megabytes")))


def departures(asked, folder):
    """Runs planned departures one after the other, by the code of the test."""
    folder.mkdir()
    found = elastic.planned(asked.program, tuple(elastic.BERT), folder, random.Random(), departures=asked.departures)
    again = sum(each.repeats > 0 for each in found)
    left = sum(each.replicas == RANKS - 1 for each in found)
    print(f"{left} of {asked.departures} planned departures, {len(found) - left} newcomers between them: "
          f"{again * GLOBAL_BATCH // MICRO_BATCH} micro-batches done again, the curve of the steady run")
    return dict(departures=left, newcomers=len(found) - left, steps_done_again=again)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", help="train_bert")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--losses", type=int, default=6, help="of a rank, in a round")
    parser.add_argument("--departures", type=int, default=10)
    parser.add_argument("--preset", default="tiny")
    parser.add_argument("--json")
    asked = parser.parse_args()
    events = [(signal.SIGTERM, signal.SIGKILL)[at % 2] for at in range(asked.losses)]
    found, load = {}, os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        for stage in (1, 3):
            pairs = []
            for count in range(asked.rounds):
                pairs.append([run(asked, folder / f"{name}-{stage}-{count}", stage, which)
                              for name, which in (("steady", []), ("elastic", events))])
                assert pairs[-1][0]["numbers"] == pairs[-1][1]["numbers"], "the curves differ"
            report(stage, pairs, asked.steps)
            sys.stdout.flush()
            found[f"zero {stage}"] = [[{key: of[key] for key in of if key != "numbers"} for of in pair] for pair in pairs]
        found["departures"] = departures(asked, folder / "departures")
    print("load of the machine: %.1f before, %.1f after" % (load, os.getloadavg()[0]))
    if asked.json:
        results_file.save(asked.json, dict(load=load, steps=asked.steps, preset=asked.preset, **found))


if __name__ == "__main__":
    main()
