#!/usr/bin/env python3
"""elastic_axes.py TRAIN_BERT [CASE...]: jobs lose ranks, take in others, and go on with other tensor and pipeline axes.
Each step has the numbers of a steady run. As long as a living rank holds every piece of the state, no step is lost."""

import functools
import signal
import sys
import time

from elastic import Elastic, run_cases
from generations import told

TINY = ["--preset", "tiny", "--vocabulary-size", "128", "--sequence-length", "16", "--samples", "256", "--global-batch", "16",
        "--micro-batch", "2", "--deterministic", "--evaluate-samples", "2", "--threads", "1"]
MINI = [{"tiny": "mini", "16": "8"}.get(word, word) for word in TINY]  # 4 heads; half the length and batch
STEPS = 30


def happens(job, what, count, rng):
    """In the middle of a step, kills `count` ranks, tells them to leave, or adds them."""
    job.wait_for_step(job.step() + 3)
    time.sleep(rng.uniform(0, 0.05))
    living = [process for process in job.processes[1:] if process.poll() is None]
    if what == "join":
        for _ in range(count):
            job.add(1)
    for process in rng.sample(living, count) if what != "join" else []:
        process.send_signal({"kill": signal.SIGKILL, "leave": signal.SIGTERM}[what])


def changed(program, run, folder, rng, start, replicas, events, loses=False):
    """A job of layout `start` must take the given layout after each event. loses: it needs a checkpoint, and saves."""
    save = folder / "save"
    more = ("--save", str(save), "--save-every", "2", "--keep", "2") if loses else ()
    data, tensor, pipeline = map(int, start.split("x"))
    axes = ("--tensor-parallel", str(tensor), "--pipeline-parallel", str(pipeline))
    with Elastic(program, (*run, *axes), folder, data * tensor * pipeline, replicas, STEPS,
                 ("--elastic-axes", "all", *more)) as job:
        job.until(lambda: not loses or (save / "latest").exists())
        for at, (what, count, _) in enumerate(events):
            happens(job, what, count, rng)
            job.until(lambda: len(told(job.said())) > at, may_end=True)
        killed = [at for at, process in enumerate(job.processes) if process.poll() == -signal.SIGKILL]
        job.end(without=killed, statuses=(0, 75))
        found = sorted(told(job.said()), key=lambda each: each.number)
        wanted = [start, *(after for _, _, after in events)]
        assert [(each.before, each.layout) for each in found] == list(zip(wanted, wanted[1:])), job.said()
        assert [each.loses for each in found] == [loses] + [False] * (len(found) - 1), job.said()
        assert (f"loaded {save}/step-" in job.said()) == loses, job.said()
        assert not [each for each, (what, *_) in zip(found, events) if what != "kill" and each.repeats], job.said()


def too_large(program, run, folder, rng):
    """A single rank has too little memory for the whole model: if one of two is told to leave, both save and stop."""
    with Elastic(program, (*run, "--pipeline-parallel", "2"), folder, 2, "1:1", STEPS,
                 ("--elastic-axes", "all", "--memory-limit", "0.025", "--save", str(folder / "save"))) as job:
        happens(job, "leave", 1, rng)
        ends = job.wait(100)
        assert [end.status for end in ends] == [75, 75] and "as a signal asked" in job.said(), job.said()
        assert not told(job.said()), job.said()


CASES = {
    # With two replicas, a living rank holds every piece.
    "2x2x2": (TINY, "2x2x2", "2:2", [("kill", 1, "2x1x3"), ("join", 1, "2x2x2"), ("kill", 1, "2x1x3")]),
    "4x1x2": (TINY, "4x1x2", "2:4", [("kill", 1, "2x1x3"), ("kill", 1, "2x1x3"), ("join", 2, "2x2x2")]),
    # The tensor axis stays.
    "2x1x2": (TINY, "2x1x2", "1:2", [("kill", 1, "1x1x3"), ("leave", 1, "1x1x2"), ("join", 1, "1x1x3")]),
    # The only replica loses ranks that leave as planned, and hand over their pieces first.
    "1x4x2": (MINI, "1x4x2", "1:1", [("leave", 1, "1x1x7"), ("leave", 1, "1x2x3")]),
    # The only replica loses a killed rank: the job goes on from the newest checkpoint.
    "lost": (TINY, "1x2x2", "1:1", [("kill", 1, "1x1x3")]),
}


def main():
    bert, *only = sys.argv[1:]
    cases = {name: functools.partial(changed, bert, tuple(run), start=start, replicas=replicas, events=events, loses=name == "lost")
             for name, (run, start, replicas, events) in CASES.items()}
    cases["too-large"] = functools.partial(too_large, bert, tuple(TINY))
    run_cases({name: cases[name] for name in only or cases})


if __name__ == "__main__":
    main()
