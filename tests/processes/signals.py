#!/usr/bin/env python3
"""signals.py TRAIN_BERT: SIGTERM and SIGINT to a run of threads, or to one of its processes, make all ranks save after the same
step and end with status 75; a second signal and the end of the grace end a process at once."""

import concurrent.futures
import functools
import pathlib
import signal
import sys
import tempfile
import time

import ranks

TERM, INT = signal.SIGTERM, signal.SIGINT
RUN = ["--preset", "tiny", "--vocabulary-size", "512", "--sequence-length", "32", "--micro-batch", "4", "--steps", "9999",
       "--evaluate-samples", "4", "--data-parallel", "2"]
QUICK = [*RUN, "--samples", "256", "--global-batch", "16"]
SLOW = [*RUN, "--samples", "4000", "--global-batch", "4000"]  # no step ends within the test


def saves(program, root, number, processes, to):
    """Stopped, and after it has gone on stopped again."""
    steps = []
    for more in ([], ["--load", str(root)]):
        line = [program, *QUICK, "--save", str(root), *more]
        with ranks.Job(2 if processes else 1, [*line, "--transport", "gloo"] if processes else line) as job:
            ranks.wait_for(job, "evaluation at the start")
            job.processes[to].send_signal(number)
            ends = job.wait(60)
        assert [end.status for end in ends] == [75] * len(ends), ends
        latest = (root / "latest").read_text().strip()
        steps.append(int(latest[5:]))
        for text in (f"stops after step {steps[-1]}, as a signal asked", f"saved {root / latest}"):
            assert text in ends[0].output, ends[0].output
        if more:
            assert f"loaded {root / f'step-{steps[0]:08}'}: goes on after step {steps[0]}" in ends[0].output, ends[0].output
    assert 0 < steps[0] < steps[1], steps


def ends_at_once(program, root, signals, processes, grace):
    line = [program, *SLOW, "--save", str(root), "--grace", str(grace)]
    with ranks.Job(2 if processes else 1, [*line, "--transport", "gloo"] if processes else line) as job:
        ranks.wait_for(job, "evaluation at the start")
        to = job.processes[-1]
        for number in signals:
            to.send_signal(number)
            time.sleep(0.5)
            assert to.poll() is None or number == signals[-1]
        to.wait(2)
        ends = job.wait(60)  # others are in a step
    assert ends[-1].status == 128 + signals[-1], ends
    said = f"signal {int(signals[-1])}: the run has not saved within the grace of {grace} s"
    assert (said in ends[-1].output) == (len(signals) == 1), ends[-1].output
    assert all(end.status not in (0, 75) for end in ends), ends
    assert not list(root.glob("step-*")), list(root.iterdir())


def main():
    cases = [functools.partial(saves, number=TERM, processes=False, to=0),
             functools.partial(saves, number=INT, processes=False, to=0),
             functools.partial(saves, number=TERM, processes=True, to=1),
             functools.partial(ends_at_once, signals=[TERM, TERM], processes=False, grace=60),
             functools.partial(ends_at_once, signals=[TERM, INT], processes=True, grace=60),
             functools.partial(ends_at_once, signals=[INT], processes=False, grace=0.3),
             functools.partial(ends_at_once, signals=[TERM], processes=True, grace=0.3)]
    with tempfile.TemporaryDirectory() as temporary, concurrent.futures.ThreadPoolExecutor(2) as pool:
        roots = [pathlib.Path(temporary) / str(at) for at in range(len(cases))]
        for case, done in [(case, pool.submit(case, sys.argv[1], root)) for case, root in zip(cases, roots)]:
            done.result()
            print(case.func.__name__, case.keywords, "as it should", flush=True)


if __name__ == "__main__":
    main()
