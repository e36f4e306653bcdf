#!/usr/bin/env python3
"""signals.py TRAIN_BERT: after SIGTERM, SIGINT or SIGHUP to one process, all ranks save after the same step and exit
with status 75, even during an evaluation, and at once if there is nothing to save. A second signal, or the end of the
grace period, ends a process at once. A run goes on if the reader of its output is gone, or if its end takes long."""

import concurrent.futures
import functools
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

import ranks

TERM, INT, HUP = signal.SIGTERM, signal.SIGINT, signal.SIGHUP
HANG_S = 300  # only a hang lasts this long
RUN = ["--preset", "tiny", "--vocabulary-size", "512", "--sequence-length", "32", "--micro-batch", "4", "--steps", "9999",
       "--data-parallel", "2"]
QUICK = [*RUN, "--samples", "256", "--global-batch", "16", "--evaluate-samples", "4"]
SLOW = [*RUN, "--samples", "4000", "--global-batch", "4000", "--evaluate-samples", "4"]  # no step ends within the test
EVALUATES = [*RUN, "--global-batch", "8", "--held-out", "0.9", "--evaluate-every", "1"]  # mostly evaluates


def start(line, processes, **more):
    return ranks.Job(processes, [*line, "--transport", "gloo"] if processes > 1 else line, **more)


def saves(program, root, number, processes, line=QUICK, ready="evaluation at the start", said="saved"):
    """The last process gets a signal in a run, and in the run that continues it."""
    steps = []
    for more in ([], ["--load", str(root)]):
        with start([program, *line, "--save", str(root), *more], processes) as job:
            ranks.wait_for(job, ready)
            job.processes[-1].send_signal(number)
            ends = job.wait(HANG_S)
        assert [end.status for end in ends] == [75] * len(ends), ends
        latest = (root / "latest").read_text().strip()
        steps.append(int(latest[5:]))
        for text in (f"stops after step {steps[-1]}, as a signal asked", f"saved {root / latest}", said):
            assert text in ends[0].output, ends[0].output
        if more:
            assert f"loaded {root / f'step-{steps[0]:08}'}: goes on after step {steps[0]}" in ends[0].output, ends[0].output
    assert 0 < steps[0] < steps[1], steps


def listens(process):
    """Whether the process blocks SIGTERM, so that the signal alone does not end it."""
    blocked = re.search(r"SigBlk:\s+(\w+)", pathlib.Path(f"/proc/{process.pid}/status").read_text())[1]
    return int(blocked, 16) >> TERM - 1 & 1


def has_nothing_to_save(program, root, line, processes, of, ready, said):
    with start([program, *line, "--save", str(root)], processes, environment={"WORLD_SIZE": str(of)}) as job:
        ranks.wait_for(job, ready)
        for process in job.processes:
            job.until(functools.partial(listens, process))
        for process in job.processes:
            process.send_signal(TERM)
        ends = job.wait(HANG_S)
    assert [end.status for end in ends] == [75] * len(ends) and re.search(said, ends[0].output), ends
    assert not (root / "latest").exists()


def ends_at_once(program, root, signals, processes, grace):
    with start([program, *SLOW, "--save", str(root), "--grace", str(grace)], processes) as job:
        ranks.wait_for(job, "evaluation at the start")
        to = job.processes[-1]
        for number in signals:
            to.send_signal(number)
            time.sleep(0.5)
            assert to.poll() is None or number == signals[-1]
        ends = job.wait(HANG_S)  # the other ranks are in a step
    assert ends[-1].status == 128 + signals[-1], ends
    said = f"signal {int(signals[-1])}: the run has not saved within the grace of {grace} s"
    assert (said in ends[-1].output) == (len(signals) == 1), ends[-1].output
    assert all(end.status not in (0, 75) for end in ends), ends
    assert not list(root.glob("step-*")), list(root.iterdir())


def stays(program, root):
    """A run that ignores SIGHUP, like nohup's runs, goes on after SIGHUP and without a reader of its output. SIGINT is
    ignored likewise: the shell does so for what a script starts with &."""
    def ignore():
        for number in (HUP, INT):
            signal.signal(number, signal.SIG_IGN)

    here, there = os.pipe()
    line = [program, *QUICK, "--save", str(root), "--save-every", "1"]
    ucx = {**os.environ, "UCX_DEBUG_SIGNO": ""}  # otherwise UCX (of Open MPI) handles SIGHUP before main begins
    with subprocess.Popen(line, stderr=there, env=ucx, preexec_fn=ignore) as process:
        os.close(there)
        os.read(here, 1)
        os.close(here)
        for number in (HUP, INT, TERM):
            begin, steps = time.monotonic(), set(root.glob("step-*"))
            while set(root.glob("step-*")) <= steps:
                assert process.poll() is None and time.monotonic() - begin < HANG_S
                time.sleep(0.02)
            process.send_signal(number)
        assert process.wait(HANG_S) == 75


def ends_slowly(program, root):
    """An export at the end may take longer than the saves before it, which go on in the background."""
    (root / "weights").mkdir(parents=True)
    os.mkfifo(root / "weights" / "model.safetensors.part")  # rank 0 waits here for a reader
    with start([program, *QUICK, "--stop-after", "8", "--save", str(root), "--save-every", "1", "--export", str(root / "weights")],
               2) as job:
        ranks.wait_for(job, "training has waited for saves")
        time.sleep(33)
        assert not job.poll(), job.said()


def main():
    signal.signal(INT, signal.default_int_handler)  # a script may have started this one with &
    first = "stops before its first step, as a signal asked: there is nothing to save"
    options = f"/proc/{os.getpid()}/fd/{os.pipe()[0]}"  # which never come
    cases = [functools.partial(has_nothing_to_save, line=["--config", options], processes=1, of=1, ready="", said=first),
             functools.partial(saves, number=TERM, processes=1), functools.partial(saves, number=INT, processes=1),
             functools.partial(saves, number=HUP, processes=2),
             functools.partial(saves, number=TERM, processes=2, line=EVALUATES, ready="samples/s", said="broken off, as"),
             functools.partial(ends_at_once, signals=[TERM, TERM], processes=1, grace=600),
             functools.partial(ends_at_once, signals=[HUP, INT], processes=2, grace=600),
             functools.partial(ends_at_once, signals=[INT], processes=1, grace=0.3),
             functools.partial(ends_at_once, signals=[TERM], processes=2, grace=0.3),
             functools.partial(has_nothing_to_save, line=EVALUATES, processes=2, of=2, ready="layout ", said=first),
             functools.partial(has_nothing_to_save, line=[*RUN, "--pipeline-parallel", "2"], processes=2, of=4, ready="",
                               said=first),
             functools.partial(has_nothing_to_save, line=[*RUN[:-2], "--elastic", "1:3"], processes=2, of=3, ready="text ",
                               said=first + "|stops while it waits for the job, as it was asked to: "),
             stays, ends_slowly]
    with tempfile.TemporaryDirectory() as temporary, concurrent.futures.ThreadPoolExecutor(2) as pool:
        roots = [pathlib.Path(temporary) / str(at) for at in range(len(cases))]
        for case, done in [(case, pool.submit(case, sys.argv[1], root)) for case, root in zip(cases, roots)]:
            done.result()
            print(getattr(case, "func", case).__name__, getattr(case, "keywords", ""), "as it should", flush=True)


if __name__ == "__main__":
    main()
